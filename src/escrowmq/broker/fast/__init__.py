"""The fast path: requests of shapes that a connection has shown before, served many at a time.

What is special, odd or not allowed goes the general way, which stays what they mean."""
