"""Statistics of transactions: how many are committed, how long it takes, what is stuck, what is
delivered twice.

Functions of DataFrames, a job that maintains their tables, and a report for people."""
