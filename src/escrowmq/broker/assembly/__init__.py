"""Creates the parts of a broker and puts them in order."""
