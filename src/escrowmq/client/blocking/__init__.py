"""The blocking clients: the same methods without `await`, callable from any thread. Each is a call
through the portal; nothing is decided here."""
