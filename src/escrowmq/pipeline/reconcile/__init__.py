"""Determines the fate of every transaction, and finds contradictions between halves, op records,
final messages and consumers.

Functions of DataFrames: no session, path or clock inside. `records` extracts halves, op records and
final messages from a table of messages, `fates` determines the fate of each half, `differences`
compares, `sum_check` verifies that nothing is missing."""
