"""Prepares messages for storing: rules, destination topic, delays, batches, halves."""
