"""Replication: a master's slaves, a slave's master, and the members of a group that fails over."""
