"""Transactions: half messages, their outcome, and the checks that ask for it.

A pure room over the store: it decides and stores; the caller says who is connected."""
