"""How messages reach consumers: topics, groups, offsets, locks, long polls, retries, delays.

Pure: time, disk and chance come from outside. The wire is not known here."""
