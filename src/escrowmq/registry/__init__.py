"""The name server as a state machine. No I/O, clock or chance may enter; disks come in as ports."""
