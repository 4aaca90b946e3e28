"""Code that all outboxes share: the tables, their statements in order, and the meaning of the
results. It opens no database and no broker: the callers run the steps."""
