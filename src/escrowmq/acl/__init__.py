"""Who may do what: accounts, addresses, and the one question whether a request may pass. Pure."""
