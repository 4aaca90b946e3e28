"""The broker as a state machine: it takes bytes and returns effects, and does no I/O itself."""
