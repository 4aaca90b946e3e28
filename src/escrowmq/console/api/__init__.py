"""The calls of the API, a file a noun. Each is what a page shows, and nothing that a page computes
by itself."""
