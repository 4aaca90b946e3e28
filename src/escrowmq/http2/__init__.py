"""HTTP/2 for gRPC: bytes in, events out; commands in, bytes out. No I/O and no clock."""
