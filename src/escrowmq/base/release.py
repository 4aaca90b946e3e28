"""Which EscrowMQ this is. pyproject.toml takes it from here: to ask Python for the version of an
installed distribution costs a server 15 ms of its start."""

from typing import Final

RELEASE: Final = "0.1.0"
