"""How transactions go: how many are committed, how long it takes, what is stuck, what comes twice.

Functions of DataFrames, a job that keeps their tables up to date, and a report for people.
"""
