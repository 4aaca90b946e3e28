"""Which messages a consumer gets: filters, the rules of a pull, reading for a pop."""
