"""The SDK's implementation: `core` decides, the rest talks over the wire. It knows nothing of a
broker's internals."""
