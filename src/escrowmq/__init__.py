"""EscrowMQ: transactional messaging that speaks Apache RocketMQ."""

__all__: list[str] = []
