"""The calls of the API, one file for each noun. A page shows what a call returns, and computes
nothing by itself."""
