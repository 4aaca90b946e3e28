"""What driver and executors ask of name servers and brokers, over blocking connections."""
