"""The log engine over the Disk port: commit log, consume queues, index, checkpoint, tables.

No clock, thread, file or event loop may enter; time is an argument and the disk is passed in.
"""
