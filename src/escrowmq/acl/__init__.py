"""Access control: decides by accounts and addresses whether a request is allowed. No I/O of its
own."""
