"""Engines that decide which broker is master (docs/authority.md): one record for each broker name,
changed by compare-and-swap. What the record says, and when it changes, is not decided here."""
