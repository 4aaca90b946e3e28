"""`escrowmq cluster drill`: injects faults into a group while clients of our SDK work, and judges
what they observed. No lower room depends on it; it talks to brokers over the wire only."""
