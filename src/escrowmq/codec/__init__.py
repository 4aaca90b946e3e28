"""Converts bytes to values and back. All modules here are functions of bytes, without I/O, clock or
state."""
