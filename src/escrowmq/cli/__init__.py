"""The command line, one file per verb. Heavy packages are imported inside the verb."""
