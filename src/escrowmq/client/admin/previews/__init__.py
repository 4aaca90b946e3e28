"""What changes of a cluster would do: one function for each change, which asks and changes nothing.
The console's dry runs and the command line's `--dry-run` show the same answers."""
