"""How the parts of a broker are made and put in order."""
