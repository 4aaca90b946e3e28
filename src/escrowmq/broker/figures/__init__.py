"""The broker's metrics and the counters for them."""
