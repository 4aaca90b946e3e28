"""The fast path: requests of shapes that a connection has shown before, served many at a time.

Everything special, odd or forbidden takes the general path, which defines what the requests
mean."""
