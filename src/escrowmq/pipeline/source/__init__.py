"""Topics, and log files, as rows: batch and stream."""
