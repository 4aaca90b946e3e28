"""What tests of ours and of our users stand on. Nothing here runs in production."""
