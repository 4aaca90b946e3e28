"""How the parts of a broker are created and ordered."""
