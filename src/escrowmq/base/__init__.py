"""Vocabulary: values, names, numbers, limits and ports. No behaviour."""
