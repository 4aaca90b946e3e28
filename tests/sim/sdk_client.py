"""What the clients have in common that decide as the SDK does: its dialogue, on a simulated
network."""

from __future__ import annotations

from escrowmq.base.command import Command
from escrowmq.client.core.dialogue import Dialogue, Done
from escrowmq.errors import ConnectFailed, TransportError
from tests.sim.client import CALL_MS, OnReply, SimClient
from tests.sim.network import Link
from tests.sim.stage import Violation

BROKER = "sim-broker"
"""The name of the broker that is there."""


class SdkClient(SimClient):
    """Requests, answers and what becomes of those that are not answered: all by the SDK's core."""

    _dialogue: Dialogue | None = None

    def opened(self, link: Link) -> None:
        """See network.End."""
        if link is self.link:
            self._dialogue = Dialogue(
                BROKER,
                write=lambda data: link.send(data, is_from_caller=True),
                serve=self.on_request,
                decorate=lambda fields, _: fields,
            )
        super().opened(link)

    def received(self, link: Link, data: bytes) -> None:
        """See network.End."""
        dialogue = self._dialogue
        if link is not self.link or dialogue is None:
            return
        dialogue.receive(data, self.now())
        if broken := dialogue.frame_error(data):
            raise Violation(f"{self.name}: {broken}")

    def lost(self, link: Link) -> None:
        """See network.End."""
        dialogue, is_ours = self._dialogue, link is self.link
        super().lost(link)
        if is_ours:
            self._dialogue = None
            if dialogue is not None:
                dialogue.fail_all("the network has it")

    def crash(self) -> None:
        """See SimClient: nobody hears of anything any more."""
        super().crash()
        self._dialogue = None

    # -- calls -----------------------------------------------------------------------------------

    def now(self) -> float:
        """In seconds."""
        return self.stage.clock.now_ms() / 1000

    def ask(
        self, code: int, fields: dict[str, str], done: Done, *, body: bytes = b"", timeout_s: float
    ) -> None:
        """Make a request; `done` hears what comes of it, unless this process is gone by then."""
        dialogue, life = self._dialogue, self.life
        if dialogue is None:
            done(None, ConnectFailed(f"{BROKER} cannot be reached"))
            return

        def heard(reply: Command | None, error: TransportError | None) -> None:
            if life == self.life:
                done(reply, error)

        dialogue.ask(code, fields, body, now=self.now(), timeout_s=timeout_s, done=heard)
        self.after(round(timeout_s * 1000) + 1, lambda: dialogue.expire_requests(self.now()))

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
        """See SimClient."""
        assert times == 1, "the SDK doubles no request"
        self.ask(
            code, ext, lambda reply, _: on_reply(reply), body=body, timeout_s=timeout_ms / 1000
        )

    def cast(self, code: int, ext: dict[str, str]) -> None:
        """See SimClient."""
        if self._dialogue is not None:
            self._dialogue.send_one_way(code, ext, b"")
