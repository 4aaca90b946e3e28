"""Where the SDK meets other libraries; each module needs one that is not installed with EscrowMQ.
Nothing here knows a broker's inside, and nothing else imports from here."""
