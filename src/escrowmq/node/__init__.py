"""Puts cores and shells together into processes; reads settings from files and flags."""
