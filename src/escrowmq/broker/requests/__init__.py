"""One file a family of requests, the tables of all requests, and how one is served."""
