"""`escrowmq cluster drill`: faults of a group on purpose, with clients of our SDK at work, and the
judge of what they saw. No room below knows it; it talks to brokers over the wire only."""
