"""The web console and its HTTP/JSON API: pages and calls over the SDK's `Admin`, and nothing else.
It reaches brokers only through the wire protocol, so it works with any cluster, including Apache
RocketMQ's.

Needs the extra (`pip install 'escrowmq[console]'`): Starlette, uvicorn, Jinja2. `options` and
`logins` need none of these; a server loads them when it starts.
"""
