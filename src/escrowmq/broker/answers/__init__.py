"""Sends answers: encodes them in the client's protocol, and delays them until disk and replicas
allow them."""
