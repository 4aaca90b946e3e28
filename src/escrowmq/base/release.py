"""The release of EscrowMQ. pyproject.toml reads it from here: asking Python for the version of an
installed distribution costs a server 15 ms of its start. `node/build` determines the build."""

from typing import Final

RELEASE: Final = "0.1.0"
