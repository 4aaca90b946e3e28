"""Models of protocols, searched exhaustively."""
