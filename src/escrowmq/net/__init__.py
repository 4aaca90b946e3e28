"""The I/O shell: sockets, files, the clock, the event loop. It uses cores only through their
interfaces."""
