"""The plain faces of the clients: the same methods, without `await`, from any thread. Each is a
call through the portal; nothing is decided here."""
