"""Previews of changes to a cluster. Each kind of change has one function that reads what it needs
and changes nothing. The console's dry runs and the command line's `--dry-run` use the same
functions."""
