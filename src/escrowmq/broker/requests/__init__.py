"""One file for each family of requests, the tables of all requests, and how one is served."""
