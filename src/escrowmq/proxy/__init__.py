"""The gRPC front: takes calls of official RocketMQ 5 clients and makes requests to a broker. No
sockets, no clock; it knows the broker by `backend` only."""
