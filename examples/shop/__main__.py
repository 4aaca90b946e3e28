"""Runs the shop: `python -m examples.shop`, or one service of it.

With no database it keeps SQLite in its folder. `--database postgresql+asyncpg://user@host/shop`.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import socket
import subprocess
import sys
from pathlib import Path

import uvicorn
from sqlalchemy.ext.asyncio import create_async_engine

from . import packing
from .mailer import run as run_mailer
from .orders import create_app
from .tables import create_tables

HOST = "127.0.0.1"


async def prepare(database: str) -> None:
    """Make the tables."""
    engine = create_async_engine(database)
    await create_tables(engine)
    await engine.dispose()


def run_orders(database: str, nameserver: str | None, port: int) -> None:
    """Serve orders until the process is told to end."""
    door = socket.socket()
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    door.bind((HOST, port))
    server = uvicorn.Server(uvicorn.Config(create_app(database, nameserver), log_level="warning"))

    async def serve() -> None:
        serving = asyncio.create_task(server.serve(sockets=[door]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        print(f"orders ready http://{HOST}:{door.getsockname()[1]}", flush=True)
        await serving

    asyncio.run(serve())


def packer_command(nameserver: str, folder: Path) -> list[str] | None:
    """What starts the Java service; None, and a line that says why, where that cannot be."""
    reason = packing.missing()
    try:
        if not reason:
            return [*packing.command(packing.make(), folder), nameserver, str(folder / "parcels")]
    except packing.NotMade as error:
        reason = str(error)
    print(f"no packer, which is in Java; not on this machine: {reason}", flush=True)
    return None


def run_all(database: str, folder: Path, port: int) -> None:
    """A broker and all services, each a process; they end together."""
    asyncio.run(prepare(database))
    broker = [sys.executable, "-m", "escrowmq", "serve", "--data", str(folder / "store")]
    broker += ["--nameserver-port", "0", "--broker-port", "0"]
    children: list[subprocess.Popen[str]] = []
    children.append(subprocess.Popen(broker, stdout=subprocess.PIPE, text=True))
    assert children[0].stdout is not None
    ready = children[0].stdout.readline()
    print(ready, end="", flush=True)
    nameserver = ready.partition("nameserver=")[2].split()[0]
    for service, more in (("orders", ["--port", str(port)]), ("mailer", [])):
        command = [sys.executable, "-m", "examples.shop", service, "--database", database]
        command += ["--nameserver", nameserver, *more]
        children.append(subprocess.Popen(command, text=True))
    if (packer := packer_command(nameserver, folder.resolve())) is not None:
        children.append(subprocess.Popen(packer, text=True))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        children[1].wait()
    except KeyboardInterrupt:
        pass
    finally:
        for child in reversed(children):
            child.terminate()
            child.wait()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("service", nargs="?", choices=("all", "orders", "mailer"), default="all")
    parser.add_argument("--database")
    parser.add_argument("--nameserver")
    parser.add_argument("--folder", type=Path, default=Path("build/shop"))
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    database = given.database or f"sqlite+aiosqlite:///{given.folder / 'shop.db'}"
    if given.service == "orders":
        run_orders(database, given.nameserver, given.port)
    elif given.service == "mailer":
        asyncio.run(run_mailer(database, given.nameserver))
    else:
        run_all(database, given.folder, given.port)


if __name__ == "__main__":
    main()
