"""What a broker tells of itself: metrics, and what they are counted from."""
