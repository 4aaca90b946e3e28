"""The client's decisions, as values and functions: no sockets, no clock, no randomness of its
own."""
