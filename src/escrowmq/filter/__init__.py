"""Subscriptions to predicates: tags and SQL92. No I/O, clock, codec or state may enter."""
