"""Access control: accounts, rights, quotas per account, and the audit log."""
