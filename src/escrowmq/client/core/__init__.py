"""What a client decides, as values and functions: no sockets, no clock, no chance of its own."""
