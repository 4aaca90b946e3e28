"""Decides which messages a consumer gets: filters, the rules of a pull, and the reading of a
pop."""
