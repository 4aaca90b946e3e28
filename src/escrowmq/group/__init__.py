"""Groups of brokers that fail over: which member is master of an epoch, what is confirmed, and what
is cut off a log. All are state machines without I/O. They need no consensus among themselves: an
authority outside stores the record by compare-and-swap."""
