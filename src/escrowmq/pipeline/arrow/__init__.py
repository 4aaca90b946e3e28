"""Log records as Arrow columns, without a Python object per value."""
