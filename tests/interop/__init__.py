"""Real RocketMQ clients and brokers against EscrowMQ, over the wire alone."""
