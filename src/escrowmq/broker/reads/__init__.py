"""Which messages a consumer is given: filters, the rules of a pull, reading for a pop."""
