"""Converts bytes to values and back: functions of bytes. No I/O, clock or state."""
