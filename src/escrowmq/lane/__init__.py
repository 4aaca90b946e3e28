"""What costs most of the short cut, and of reading records into columns, compiled. Nothing is
decided here, and nothing is here alone: plain Python does the same wherever this is absent, and
says what is right. It imports no other room; bytes and plain values come in and go out."""
