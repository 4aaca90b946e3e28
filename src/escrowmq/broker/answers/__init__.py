"""Answers on their way out: as frames of a protocol, at once or when disk and replicas allow it."""
