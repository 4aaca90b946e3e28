"""Whose a request is, what it may do, and how much of it: accounts, rights, quotas, the audit
log."""
