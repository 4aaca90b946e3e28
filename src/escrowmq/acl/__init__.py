"""Access control: accounts, addresses, and whether a request may pass. Pure."""
