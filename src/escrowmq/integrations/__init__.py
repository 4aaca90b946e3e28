"""Integrations with other libraries; each module needs one that is not installed with EscrowMQ.
They do not use the broker's internals, and no other package imports from here."""
