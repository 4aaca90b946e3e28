"""Compiles subscriptions to predicates: tags and SQL92. No I/O, clock, codec or state."""
