"""The broker as a state machine: bytes in, effects out. No I/O may enter."""
