"""The core of a test's broker: that of production, except that it can lose ENDs, and that its
clients count as alive as long as they are connected."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from escrowmq.base.answer import Refusal, Reply
from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.broker.core import BrokerCore
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.delivery.clients import Channel
from escrowmq.delivery.topics import TopicConfig

_LOST: Final = "the test has lost this end (lose_next_end)"
_POLLS: Final = (Request.POP_MESSAGE, Request.NOTIFICATION)
_NEVER_MS: Final = (1 << 62) - 1


class KitCore(BrokerCore):
    """A broker core that can lose ENDs."""

    ends_to_lose = 0
    """The number of next ENDs to lose."""

    def __init__(self, *given: Any, **settings: Any) -> None:  # noqa: ANN401
        super().__init__(*given, **settings)
        # Use only the general path, in which a test can intervene.
        self.remoting.fast_path = None
        rows = self.serving.rows
        for code in _POLLS:
            rows[code] = msgspec.structs.replace(
                rows[code], serve=partial(_serve_now, rows[code].serve)
            )
        end = rows[Request.END_TRANSACTION]
        rows[end.code] = msgspec.structs.replace(end, serve=partial(self._serve_end, end.serve))

    def _serve_end(
        self, serve: Callable[[IncomingRequest[Any]], Reply], request: IncomingRequest[Any]
    ) -> Reply:
        if not (self.ends_to_lose and _is_end(request.command)):
            return serve(request)
        self.ends_to_lose -= 1
        # Refuse it instead of dropping it: the client would retry until its timeout, and the test
        # would wait.
        return Refusal(Response.SYSTEM_ERROR, _LOST)

    def create_topic(self, name: str, queues: int, now_ms: int) -> None:
        """Create a topic, and register it at the name server."""
        config = TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)
        self.broker.topics.put(config, now_ms)
        self._finish_input(now_ms)

    # -- clients ---------------------------------------------------------------------------------

    def channels(self) -> list[Channel]:
        """Return every client, once for each of its groups."""
        clients = self.broker.clients
        found = [c for channels in clients.producers.values() for c in channels.values()]
        return found + [c for g in clients.consumers.values() for c in g.channels.values()]

    def refresh_clients(self, now_ms: int) -> None:
        """Mark every connected client as alive now. Their heartbeats follow real time, and the
        broker's clock may be far ahead."""
        for channel in self.channels():
            channel.seen_ms = now_ms

    def ask(self, peer: int, code: int, ext: dict[str, str], answer: Any) -> None:  # noqa: ANN401
        """Make a request to a client; `answer(reply, now_ms)` is called in any case."""
        self.broker.peers.send_request(peer, code, ext=ext, on_answer=answer, until_ms=_NEVER_MS)


def _is_end(command: Command) -> bool:
    """Whether a request is a producer's END that does not answer a check."""
    ext = command.ext or {}
    return (
        command.code == Request.END_TRANSACTION
        and ext.get("fromTransactionCheck") != "true"
        and ext.get("commitOrRollback") != "0"
    )


def _serve_now(
    serve: Callable[[IncomingRequest[Any]], Reply], request: IncomingRequest[Any]
) -> Reply:
    """Serve a request as if it had been sent now: the clients' clocks run while the broker's stands
    still or is advanced."""
    request.header.born_time = 0
    return serve(request)
