"""The gRPC front: official RocketMQ 5 clients in, questions to a broker out. No sockets, no clock;
the broker is known by `backend` only."""
