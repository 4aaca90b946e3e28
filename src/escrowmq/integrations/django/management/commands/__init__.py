"""One file a command, as Django finds them."""
