"""The client's decisions, as values and functions without sockets, clock or randomness."""
