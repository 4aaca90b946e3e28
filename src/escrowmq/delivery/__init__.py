"""Delivery of messages to consumers: topics, groups, offsets, locks, long polls, retries, delays.

Does no I/O itself: time, disk and randomness are passed in. It does not know the wire format.
"""
