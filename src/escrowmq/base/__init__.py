"""Vocabulary: values, names, numbers, bounds and ports. No behaviour may enter."""
