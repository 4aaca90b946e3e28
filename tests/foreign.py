"""What is others' in the tests, made before they run: `python -m tests.foreign`, and with `--all`
what only long tests want.

Each is also made by the first test that wants it, and whoever wants the same waits with it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import msgspec
from examples.shop import packing

from tests.browser import axe_core
from tests.group import porcupine
from tests.grpc import tools
from tests.interop import jars
from tests.v5 import clients


class Foreign(msgspec.Struct, frozen=True):
    """Something to be made, and the tools that it takes."""

    name: str
    tools: tuple[str, ...]
    make: Callable[[], object]


MAVEN: Final = ("java", "javac", "mvn")
FETCHED: Final = [
    Foreign("preload", ("cc",), jars.loopback),
    *(Foreign(f"Java client {one}", MAVEN, partial(jars.java_driver, one))
      for one in jars.CLIENT_RELEASES),
    Foreign("packer of the shop", MAVEN, packing.make),
    *(Foreign(f"{one.name} client of RocketMQ 5", one.tools, one.start)
      for one in (clients.JAVA, clients.NODE)),
    Foreign("axe-core", axe_core.TOOLS, axe_core.script),
]  # fmt: skip
"""In the order in which tests want them. Most of the time these wait for a registry."""

COMPILED: Final = [
    Foreign("Go client", ("go",), jars.go_driver),
    Foreign("grpc-go", ("go",), tools.caller),
    Foreign("h2spec", ("go",), tools.h2spec),
    Foreign("porcupine", porcupine.TOOLS, porcupine.program),
    Foreign("go client of RocketMQ 5", clients.GO.tools, clients.GO.start),
]
"""These take the cores."""

LONG: Final = [
    Foreign("broker with ACL 1.0", MAVEN, partial(jars.server_jars, jars.ACL_BROKER_RELEASE)),
    Foreign("rust client of RocketMQ 5", clients.RUST.tools, clients.RUST.start),
]


def make_all(wanted: list[Foreign]) -> None:
    """One after the other; what this machine has no tools for is named and left out."""
    for one in wanted:
        if missing := jars.missing_tools(*one.tools):
            sys.stdout.write(f"{one.name}: not on this machine: {missing}\n")
        else:
            one.make()


def main() -> None:
    """The lists side by side; the first failure ends it."""
    wanted = [FETCHED, COMPILED, *([LONG] if "--all" in sys.argv[1:] else [])]
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(make_all, each) for each in wanted]:
            done.result()


if __name__ == "__main__":
    main()
