"""The most expensive parts of the fast path, and of reading records into columns, compiled. Nothing
is decided here, and nothing exists only here: plain Python does the same where this is absent, and
is the reference. It imports no other room; bytes and plain values come in and go out."""
