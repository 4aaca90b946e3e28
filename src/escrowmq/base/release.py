"""Which release of EscrowMQ this is. pyproject.toml takes it from here: to ask Python for the
version of an installed distribution costs a server 15 ms of its start. `node/build` says which
build it is."""

from typing import Final

RELEASE: Final = "0.1.0"
