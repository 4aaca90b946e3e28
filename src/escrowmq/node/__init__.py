"""Builds server processes from cores and shells; reads settings from files and flags."""
