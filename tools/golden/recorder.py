"""A TCP proxy between a RocketMQ client and a server that keeps every frame it passes on."""

import json
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

FRAME: Final = struct.Struct(">II")
BINARY: Final = struct.Struct(">hbhii")
REPLY_FLAG: Final = 1


@dataclass(frozen=True)
class Frame:
    """One frame as it went over the wire, and what its header says."""

    link: int
    is_from_client: bool
    code: int
    opaque: int
    is_reply: bool
    data: bytes


@dataclass(frozen=True)
class Exchange:
    """A request and its reply; None for a one-way request."""

    request: Frame
    reply: Frame | None


def parse(data: bytes, *, link: int, is_from_client: bool) -> Frame:
    """The frame in these bytes, with either form of header."""
    _, mark = FRAME.unpack_from(data)
    header = data[8 : 8 + (mark & 0xFFFFFF)]
    if mark >> 24:
        code, _, _, opaque, flag = BINARY.unpack_from(header)
    else:
        fields = json.loads(header)
        code, opaque, flag = fields["code"], fields["opaque"], fields["flag"]
    return Frame(link, is_from_client, code, opaque, bool(flag & REPLY_FLAG), data)


class Recorder:
    """Listens on `host` and forwards to `target`; `frames` grows while it runs."""

    def __init__(self, target: str, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._target = target.rsplit(":", 1)
        self._listener = socket.create_server((host, port))
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        self.frames: list[Frame] = []
        self._news = threading.Condition()
        self._links = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection((self._target[0], int(self._target[1])))
            self._links += 1
            for ends in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pump, args=(*ends, self._links), daemon=True).start()

    def _pump(
        self, source: socket.socket, sink: socket.socket, is_from_client: bool, link: int
    ) -> None:
        buffer = bytearray()
        try:
            while chunk := source.recv(65_536):
                buffer += chunk
                while len(buffer) >= 4 and len(buffer) >= (size := FRAME.unpack(buffer[:8])[0] + 4):
                    frame = parse(bytes(buffer[:size]), link=link, is_from_client=is_from_client)
                    del buffer[:size]
                    with self._news:
                        self.frames.append(frame)
                        self._news.notify_all()
                sink.sendall(chunk)
        except OSError:
            pass  # one side has gone; the other one is told below
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def mark(self) -> int:
        """A point in time for `wait`."""
        return len(self.frames)

    def wait(
        self,
        code: int,
        *,
        since: int = 0,
        wanted: Callable[[Exchange], bool] = lambda _: True,
        within_s: float = 30,
    ) -> Exchange:
        """The first exchange with that request code, with its reply unless it is one-way."""
        found: Exchange | None = None

        def look() -> bool:
            nonlocal found
            found = self._find(code, since, wanted)
            return found is not None

        with self._news:
            if not self._news.wait_for(look, within_s):
                seen = sorted({frame.code for frame in self.frames[since:] if not frame.is_reply})
                raise TimeoutError(f"no exchange {code} in {within_s} s; requests seen: {seen}")
        assert found is not None
        return found

    def _find(self, code: int, since: int, wanted: Callable[[Exchange], bool]) -> Exchange | None:
        for index in range(since, len(self.frames)):
            request = self.frames[index]
            if request.code != code or request.is_reply:
                continue
            replies = (
                frame
                for frame in self.frames[index + 1 :]
                if frame.is_reply
                and (frame.link, frame.opaque) == (request.link, request.opaque)
                and frame.is_from_client != request.is_from_client
            )
            reply = next(replies, None)
            exchange = Exchange(request, reply)
            if (reply is not None or is_oneway(request.data)) and wanted(exchange):
                return exchange
        return None

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()


def is_oneway(data: bytes) -> bool:
    """Whether the frame is a one-way request."""
    _, mark = FRAME.unpack_from(data)
    header = data[8 : 8 + (mark & 0xFFFFFF)]
    flag = BINARY.unpack_from(header)[4] if mark >> 24 else json.loads(header)["flag"]
    return bool(flag & 2)
