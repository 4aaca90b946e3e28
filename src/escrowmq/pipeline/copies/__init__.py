"""Copies topics into tables, and ranges of a topic into a topic."""
