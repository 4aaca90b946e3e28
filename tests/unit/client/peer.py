"""A peer on the wire that answers as a test tells it: a server, not a broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

from escrowmq.base.codes import Flag, Request, Response
from escrowmq.base.command import Command
from escrowmq.codec.command import encode_reply, encode_request
from escrowmq.codec.frame import FrameReader
from escrowmq.codec.properties import parse_properties
from escrowmq.codec.routes import BrokerData, QueueData, TopicRoute, encode_route

DEADLINE_S = 60.0

Answer = Callable[["Link", Command], None]


class Link(asyncio.Protocol):
    """One client's connection, seen from RocketMQ."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._reader = FrameReader()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._peer.links.append(self)

    def data_received(self, data: bytes) -> None:
        for command in self._reader.read_commands(data):
            self._peer.took(self, command)

    def connection_lost(self, exc: Exception | None) -> None:
        self._peer.links.remove(self)
        self._peer.noted()

    def reply(
        self,
        request: Command,
        code: int = 0,
        *,
        ext: dict[str, str] | None = None,
        body: bytes = b"",
        remark: str | None = None,
    ) -> None:
        self.transport.write(encode_reply(request, code, ext=ext, body=body, remark=remark))

    def ask(self, code: int, ext: dict[str, str], body: bytes = b"") -> None:
        self.transport.write(encode_request(code, 1, ext=ext, body=body, is_one_way=False))


class Peer:
    """Requests it got, replies it got, and who is connected. `answers` says what to do by code;
    a code without answer is answered with success."""

    def __init__(self) -> None:
        self.links: list[Link] = []
        self.requests: list[Command] = []
        self.replies: list[Command] = []
        self.answers: dict[int, Answer] = {}
        self.address = ""
        self._news = asyncio.Event()
        self._server: asyncio.Server | None = None

    async def open(self, port: int = 0) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Link(self), "127.0.0.1", port)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for link in list(self.links):
            link.transport.abort()

    def took(self, link: Link, command: Command) -> None:
        if command.flag & Flag.REPLY:
            self.replies.append(command)
        else:
            self.requests.append(command)
            answer = self.answers.get(command.code)
            if answer is not None:
                answer(link, command)
            elif not command.flag & Flag.ONE_WAY:
                link.reply(command)
        self.noted()

    def noted(self) -> None:
        self._news.set()

    def codes(self) -> list[int]:
        return [command.code for command in self.requests]

    async def until(self, what: Callable[[], object]) -> None:
        """Wait until something that this peer sees is true."""
        async with asyncio.timeout(DEADLINE_S):
            while not what():
                self._news.clear()
                await self._news.wait()

    def be_name_server(
        self,
        address: str,
        *,
        topics: tuple[str, ...],
        queues_count: int = 2,
        perm: int = 6,
        broker: str = "b",
        others: dict[str, str] | None = None,
        broker_id: int = 0,
    ) -> None:
        """Answer route requests: every topic is on the broker at that address, and on others."""
        addresses = {broker: address, **(others or {})}

        def answer(link: Link, command: Command) -> None:
            topic = (command.ext or {})["topic"]
            if topic not in topics:
                link.reply(command, Response.TOPIC_NOT_EXIST, remark=f"no {topic}")
                return
            route = TopicRoute(
                broker_datas=[
                    BrokerData({broker_id: at}, name, "c") for name, at in addresses.items()
                ],
                queue_datas=[
                    QueueData(
                        name,
                        perm=perm,
                        read_queue_nums=queues_count,
                        write_queue_nums=queues_count,
                    )
                    for name in addresses
                ],
            )
            link.reply(command, body=encode_route(route, is_standard=True))

        self.answers[Request.GET_ROUTEINFO_BY_TOPIC] = answer


@asynccontextmanager
async def a_peer() -> AsyncIterator[Peer]:
    """An open peer."""
    peer = Peer()
    await peer.open()
    try:
        yield peer
    finally:
        peer.close()


def stored(
    link: Link, command: Command, *, code: int = 0, signed_id: str = "", offset: int = 5
) -> None:
    """Answer a send as a broker that stored it."""
    ext = command.ext or {}
    told = {
        "msgId": f"7F00000100002A9F{offset:016X}",
        "queueId": ext["e"],
        "queueOffset": str(offset),
        "transactionId": parse_properties(ext["i"]).get("UNIQ_KEY", ""),
    }
    if signed_id and ext.get("escrowWantsId") == "true":
        told["escrowId"] = signed_id
    link.reply(command, code, ext=told)


@asynccontextmanager
async def a_place(*topics: str, signed_id: str = "") -> AsyncIterator[tuple[Peer, Peer]]:
    """A name server and a broker that stores whatever is sent to these topics."""
    async with a_peer() as names, a_peer() as broker:
        names.be_name_server(broker.address, topics=topics)
        for code in (Request.SEND_MESSAGE_V2, Request.SEND_BATCH_MESSAGE):
            broker.answers[code] = lambda link, command: stored(link, command, signed_id=signed_id)
        yield names, broker


def ends(broker: Peer) -> list[dict[str, str]]:
    """The fields of every end that a broker was told."""
    return [
        command.ext or {} for command in broker.requests if command.code == Request.END_TRANSACTION
    ]
