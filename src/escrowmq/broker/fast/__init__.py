"""The fast path: serves requests of shapes that a connection has shown before, many in one call.

All other requests take the general path, which defines what requests mean.
"""
