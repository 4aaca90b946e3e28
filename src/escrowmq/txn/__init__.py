"""Transactions: half messages, their outcomes, and the checks of halves that were not ended.

This room is built on the store and does no network I/O: it decides and stores, and its caller says
which producers are connected.
"""
