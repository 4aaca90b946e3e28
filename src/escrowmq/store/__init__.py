"""The log engine over the Disk port: commit log, consume queues, index, checkpoint, tables.

It has no clock, threads or event loop: time is an argument, and the disk is passed in.
"""
