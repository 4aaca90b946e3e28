"""A client on a simulated network: one connection at a time, heartbeats, calls with time-outs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from escrowmq.base.codes import Flag, Request, Version
from escrowmq.base.command import Command
from escrowmq.codec import fastjson
from escrowmq.codec.command import encode_command
from escrowmq.codec.frame import FrameReader
from tests.sim.network import Address, Link, SimNetwork
from tests.sim.stage import Stage, Violation

OnReply = Callable[[Command | None], None]
"""Gets the reply; None when none came in time, or the connection was lost."""

_HEARTBEAT_MS = 30_000
CALL_MS = 5_000


class SimClient:
    """The part that producers and consumers have in common."""

    def __init__(
        self, stage: Stage, network: SimNetwork, broker: Address, *, name: str, host: Address
    ) -> None:
        self.stage = stage
        self.name = name
        self.host = host
        self.link: Link | None = None
        self.is_connected = False
        self.is_running = False
        self._network = network
        self._broker = broker
        self._reader = FrameReader()
        self._opaque = 0
        self._calls: dict[int, OnReply] = {}
        self.life = 0
        self._is_binary = stage.chance.random() < 0.5

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin, or come back."""
        if not self.is_running:
            self.is_running = True
            self.life += 1
            self._connect(self.life)

    def crash(self) -> None:
        """The process is gone, and what it knew in memory with it."""
        self.is_running = False
        self.life += 1
        self._calls.clear()
        if self.link is not None:
            self.link.close(is_caller=True)
        self.link, self.is_connected = None, False

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Do something later, unless this process is gone by then."""
        life = self.life

        def act() -> None:
            if life == self.life:
                action()

        self.stage.clock.after(delay_ms, act)

    def _connect(self, life: int) -> None:
        if life == self.life and self.link is None:
            self._reader = FrameReader()
            self.link = self._network.connect(self, self.host, self._broker)

    # -- the network's side ----------------------------------------------------------------------

    def opened(self, link: Link) -> None:
        """See network.End."""
        if link is self.link:
            self.is_connected = True
            self._beat(link)
            self.on_connected()

    def lost(self, link: Link) -> None:
        """See network.End."""
        if link is self.link:
            self.link, self.is_connected = None, False
            calls, self._calls = self._calls, {}
            for on_reply in calls.values():
                on_reply(None)
            delay_ms = self.stage.chance.randrange(100, 3_000)
            self.stage.clock.after(delay_ms, partial(self._connect, self.life))

    def received(self, link: Link, data: bytes) -> None:
        """See network.End."""
        if link is not self.link:
            return
        for command in self._reader.read_commands(data):
            if command.flag & Flag.REPLY:
                on_reply = self._calls.pop(command.opaque, None)
                if on_reply is not None:
                    on_reply(command)
            else:
                self.on_request(command)
        if self._reader.broken is not None:
            raise Violation(f"the broker sent {self.name} what is no frame: {self._reader.broken}")

    def _beat(self, link: Link) -> None:
        if link is self.link:
            body = fastjson.encode({"clientID": self.name, **self.groups()})
            self.call(Request.HEART_BEAT, {}, lambda _: None, body=body)
            self.after(_HEARTBEAT_MS, partial(self._beat, link))

    # -- calls -----------------------------------------------------------------------------------

    def call(
        self,
        code: int,
        ext: dict[str, str],
        on_reply: OnReply,
        *,
        body: bytes = b"",
        times: int = 1,
        timeout_ms: int = CALL_MS,
    ) -> None:
        """Send a request, doubled if asked to, and hear the first answer."""
        if not self.is_connected:
            on_reply(None)
            return
        self._opaque += 1
        opaque = self._opaque
        self._calls[opaque] = on_reply
        for _ in range(times):
            self._send(code, opaque, 0, ext, body)

        def over() -> None:
            waiting = self._calls.pop(opaque, None)
            if waiting is not None:
                waiting(None)

        self.after(timeout_ms, over)

    def cast(self, code: int, ext: dict[str, str]) -> None:
        """Send a request that wants no answer; without a connection it is lost."""
        if self.is_connected:
            self._opaque += 1
            self._send(code, self._opaque, Flag.ONE_WAY, ext, b"")

    def _send(self, code: int, opaque: int, flag: int, ext: dict[str, str], body: bytes) -> None:
        assert self.link is not None
        command = Command(
            code=code,
            opaque=opaque,
            flag=flag,
            version=Version.OURS,
            ext=ext,
            body=body,
            is_binary=self._is_binary,
        )
        self.link.send(encode_command(command), is_from_caller=True)

    # -- what the kinds of clients differ in -----------------------------------------------------

    def groups(self) -> dict[str, object]:
        """The groups of the heartbeat's body."""
        raise NotImplementedError

    def on_connected(self) -> None:
        """The connection is there."""

    def on_request(self, request: Command) -> None:
        """The broker wants something."""
