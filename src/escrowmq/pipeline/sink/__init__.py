"""Rows as messages: plainly, or each batch exactly once."""
