"""Records of the log as Arrow columns, without a Python object for a value."""
