"""The gRPC front: takes the calls of official RocketMQ 5 clients and makes requests to a broker. It
has no sockets and no clock, and uses the broker only through `backend`."""
