"""Delivery of messages to consumers: topics, groups, offsets, locks, long polls, retries, delays.

Pure: time, disk and randomness come from outside. It does not know the wire format."""
