"""Groups of brokers that fail over: who is master of an epoch, what is confirmed, what is cut off.
State machines without input or output. Consensus is not here: an authority compares and swaps."""
