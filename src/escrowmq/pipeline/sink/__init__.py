"""Writes rows as messages: at least once, or each batch exactly once."""
