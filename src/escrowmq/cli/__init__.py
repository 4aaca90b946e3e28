"""The command line, one file a verb. Heavy rooms are imported inside the verb."""
