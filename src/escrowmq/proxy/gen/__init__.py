"""What `make protos` makes of v2.proto; nobody edits it."""
