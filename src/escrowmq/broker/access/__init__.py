"""Who sends a request, what the sender may do, and how much of it: accounts, rights, quotas, the
audit log."""
