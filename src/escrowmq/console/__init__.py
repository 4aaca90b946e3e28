"""The web console and its HTTP/JSON API. All pages and calls use the SDK's `Admin` only: they reach
brokers through the wire protocol, so the console works with any cluster, including Apache
RocketMQ's.

Needs the extra (`pip install 'escrowmq[console]'`): Starlette, uvicorn, Jinja2. `options` and
`local_users` need none of these; a server loads them when it starts."""
