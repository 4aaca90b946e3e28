"""PySpark reads topics, and writes them. Nothing of the store, the broker or the transactions may
come in here: it speaks over the wire, and reads files by `codec` alone."""
