"""Reads topics and log files as rows, in batches and streams."""
