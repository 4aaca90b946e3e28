"""The name server as a state machine, without I/O, clock or randomness; the disk is an
interface."""
