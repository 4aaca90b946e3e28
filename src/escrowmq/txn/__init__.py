"""Transactions: half messages, their one outcome, and the checks that ask for it.

A pure room over the store: it decides and stores; who is connected is told from outside."""
