"""What a broker reports about itself: metrics, and the counters behind them."""
