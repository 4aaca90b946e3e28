"""What became of every transaction, and where two places tell different stories.

Functions of DataFrames: no session, path or clock inside. `records` takes halves, op records and
final messages out of a table of messages, `fates` says what became of each half, `differences`
compares, `sums` checks that nothing is missing.
"""
