"""The I/O shell: sockets, files, the clock, the event loop. It knows cores by their ports only."""
