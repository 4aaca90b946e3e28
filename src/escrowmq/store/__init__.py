"""The log engine over the Disk port: commit log, consume queues, index, checkpoint, tables.

It uses no clock, thread, file or event loop: time is an argument and the disk is passed in."""
