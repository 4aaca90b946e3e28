"""Integrations with other libraries; each module needs one that is not installed with EscrowMQ.
Nothing here knows a broker's internals, and nothing else imports from here."""
