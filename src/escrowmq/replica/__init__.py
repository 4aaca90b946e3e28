"""Copies of the log: what a master sends its slaves, and what a slave makes of it. Bytes and the
time in, bytes out."""
