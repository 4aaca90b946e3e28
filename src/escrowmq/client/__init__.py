"""Implementation of the SDK. `core` makes the decisions; the other modules do the network I/O.
Nothing here uses the broker's internals."""
