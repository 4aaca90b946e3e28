"""grpc-go calls a server that is built on the room `http2`."""

from __future__ import annotations

import subprocess

import pytest

from tests.interop import jars

from .server import serving
from .tools import caller

SEEN = """\
large true OK
split 10000000
echoes 6400
given up DeadlineExceeded
refused PermissionDenied nö %
other Unimplemented no /t/Other
echoes 6400
"""


@pytest.mark.skipif(bool(jars.missing_tools("go")), reason="not on this machine: go")
def test_grpc_go_is_served_as_by_any_server() -> None:
    with serving() as server:
        done = subprocess.run(
            [caller(), str(server.port)], capture_output=True, text=True, check=False, timeout=300
        )
    assert done.stdout == SEEN, done.stderr[-4000:]
