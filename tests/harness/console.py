"""A console on a real port, before a broker of the kit, and a browser without a screen for it."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

import msgspec

from escrowmq.console.options import ConsoleOptions, LocalUser
from escrowmq.console.server import ConsoleServer
from escrowmq.net.clock import steady_s
from escrowmq.testing import Broker

HOST = "127.0.0.1"
ADMIN = LocalUser(name="admin", password="a long password", may_change=True)
VIEWER = LocalUser(name="viewer", password="another password", may_change=False)
PATIENCE_S = 60


class Reply(msgspec.Struct, frozen=True):
    """An answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def words(self) -> str:
        """What a page shows, without its marks."""
        reader = _Words()
        reader.feed(self.text)
        return " ".join("".join(reader.found).split())


class _Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_data(self, data: str) -> None:
        self.found.append(data + " ")


class Browser:
    """Keeps a cookie and the hidden fields of the last page."""

    def __init__(self, port: int, headers: Mapping[str, str] | None = None) -> None:
        self.port = port
        self.cookie_name = ""
        self.cookie = ""
        self.csrf = ""
        self.headers = dict(headers or {})

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Reply:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=PATIENCE_S)
        with closing(connection):
            own = {"Cookie": f"{self.cookie_name}={self.cookie}"} if self.cookie else {}
            connection.request(method, path, body, {**own, **self.headers, **(headers or {})})
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            reply = Reply(answer.status, found, answer.read())
        if "set-cookie" in reply.headers:
            self.cookie_name, _, rest = reply.headers["set-cookie"].partition("=")
            self.cookie = rest.partition(";")[0]
        seen = re.search(r'name="csrf" value="([^"]+)"', reply.body.decode(errors="replace"))
        if seen:
            self.csrf = seen[1]
        return reply

    def get(self, path: str) -> Reply:
        return self.ask("GET", path)

    def send(self, path: str, fields: Mapping[str, Any], *, csrf: str | None = None) -> Reply:
        """A form."""
        form = {"csrf": self.csrf if csrf is None else csrf, **fields}
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return self.ask("POST", path, urlencode(form, doseq=True).encode(), kind)

    def log_in(self, user: LocalUser = ADMIN) -> Reply:
        return self.send("/login", {"name": user.name, "password": user.password}, csrf="")

    def call(self, method: str, path: str, body: Any = None) -> Reply:
        """A call of the API, as a program makes it."""
        data = b"" if body is None else json.dumps(body).encode()
        return self.ask(method, f"/api/v1{path}", data, {"Content-Type": "application/json"})

    def do(self, call: str, fields: Mapping[str, Any], *, back: str = "/") -> tuple[Reply, Reply]:
        """A deed of a page: its preview, and what comes of the confirmation."""
        preview = self.send(f"/do/{call}", {**fields, "back": back})
        done = self.send(f"/do/{call}", {**fields, "back": back, "confirmed": "yes"})
        return preview, done


def program(port: int, user: LocalUser = ADMIN) -> Browser:
    """Somebody who calls the API with a name and a password."""
    import base64

    known = base64.b64encode(f"{user.name}:{user.password}".encode()).decode()
    return Browser(port, {"Authorization": f"Basic {known}"})


def until(look: Callable[[], bool]) -> None:
    """Look, by one request after another, until it is so."""
    end_s = steady_s() + PATIENCE_S
    while not look():
        assert steady_s() < end_s, "it was never so"


@contextmanager
def console(options: ConsoleOptions) -> Iterator[int]:
    """A console; the port at which it is."""
    door = socket.socket()
    door.bind((HOST, 0))
    door.listen(256)
    port = int(door.getsockname()[1])
    server = ConsoleServer(door, options, None)
    thread = threading.Thread(target=server.run, name="console")
    thread.start()
    try:
        yield port
    finally:
        server.stop()
        thread.join(PATIENCE_S)
        door.close()
        assert not thread.is_alive()


@contextmanager
def before(broker: Broker, **options: Any) -> Iterator[int]:
    """A console before a broker of the kit that has sockets."""
    chosen: dict[str, Any] = {"login": "local", "users": (ADMIN, VIEWER), **options}
    with console(ConsoleOptions(name_servers=broker.nameserver, **chosen)) as port:
        yield port
