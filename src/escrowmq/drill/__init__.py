"""`escrowmq cluster drill`: injects faults into a group while clients of our SDK work, and judges
what they observed. No lower package depends on it; it uses brokers only through the wire
protocol."""
