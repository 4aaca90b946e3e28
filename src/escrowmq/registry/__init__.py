"""The name server as a state machine. No I/O, clock or randomness; disks are ports."""
