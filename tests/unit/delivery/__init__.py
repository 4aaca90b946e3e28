"""Tests of what is delivered, and when."""
