"""One file per command, as Django expects."""
