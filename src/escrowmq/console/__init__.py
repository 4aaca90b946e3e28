"""The web console and its HTTP/JSON API: pages and calls over the SDK's `Admin`, and nothing else.
It knows no broker but by the wire, so that it works before any cluster, Apache RocketMQ's too.

Needs the extra (`pip install 'escrowmq[console]'`): Starlette, uvicorn, Jinja2. `options` and
`logins` need none of it, and are what a server loads when it starts.
"""
