"""Engines that store which broker is master (docs/authority.md): one record for each broker name,
changed by compare-and-swap. What a record contains, and when it changes, is decided elsewhere."""
