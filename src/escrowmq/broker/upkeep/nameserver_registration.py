"""Keeps the broker registered at its name servers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.base.effects import Dial
from escrowmq.base.fixed_limits import BROKER_SILENT_MS
from escrowmq.broker.identity import Identity
from escrowmq.broker.outgoing_requests import OnAnswer
from escrowmq.broker.output import Output
from escrowmq.broker.part import Part
from escrowmq.broker.peers import Peers
from escrowmq.codec import fastjson
from escrowmq.codec.acl2_bodies import parse_inner_user
from escrowmq.codec.own_signature import NUMBER, SESSION, sign_request
from escrowmq.codec.routes import PARTIAL, QueueData, TopicRoute, encode_route
from escrowmq.codec.signature import ACCESS_KEY, SIGNATURE, sign_fields
from escrowmq.delivery.topics import Perm, TopicConfig, TopicFile, TopicTable
from escrowmq.errors import EscrowMQError, UsageError

_log = logging.getLogger(__name__)

_RETRY_MS: Final = 1_000
_RETRY_MAX_MS: Final = 30_000
_SILENT_MS: Final = 10_000
_NEVER_MS: Final = (1 << 62) - 1
_MASTER_ID: Final = 0

_TOPICS_AT_ONCE: Final = 10_000
"""Topics in one registration; 75,000 would exceed the largest frame."""


def _credentials(settings: BrokerSettings) -> tuple[str, str] | None:
    """Return the name and secret with which the broker signs requests to other servers; None if it
    has none."""
    if not settings.inner_user.strip():
        return None
    try:
        info = parse_inner_user(settings.inner_user.encode())
    except EscrowMQError:
        # The text of a decoder may quote the value.
        raise UsageError(
            "innerClientAuthenticationCredentials: invalid value; see docs/security.md"
        ) from None
    return (info.username or "", info.password or "")


class _NameServer:
    """One name server, and the state of the connection to it."""

    def __init__(self, peer: int, host: str, port: int) -> None:
        self.peer = peer
        self.host = host
        self.port = port
        self.is_connected = False
        self.is_dialling = False
        self.is_registered = False
        self.unanswered_count = 0
        """The number of registrations that wait for its answer."""
        self.retry_ms = _RETRY_MS
        self.due_ms = 0
        self.session = ""
        """The text to sign on this connection, if the server requires our own signatures."""
        self.signed_count = 0
        self.failures_count = 0
        """The number of failed attempts since it last accepted the registration."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"name server {host}:{self.port}"


class Registration(Part):
    """Keeps this broker and its topics registered at every name server."""

    name = "registration"

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        topics: TopicTable,
        identity: Identity,
        peers: Peers,
        output: Output,
        ha_address: str,
        signs_as: tuple[str, str] | None = None,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._identity = identity
        self._peers = peers
        self._output = output
        self._signs_as = signs_as or _credentials(settings)
        self._ha_address = ha_address
        self._servers: dict[int, _NameServer] = {}
        self._is_leaving = False
        self.on_outcome: Callable[[], None] | None = None
        """Called whenever a name server has accepted or refused the registration, or could not be
        reached."""
        self.on_connected: Callable[[int], None] | None = None
        """Called when a connection to a name server was opened, before this broker registers over
        it."""
        self.on_accepted: Callable[[dict[str, str]], None] | None = None
        """Called with the fields of a name server's answer to the registration; a slave learns its
        master from them."""
        for index, address in enumerate(
            filter(None, (part.strip() for part in settings.name_servers.split(";")))
        ):
            host, _, port = address.rpartition(":")
            peer = -1 - index
            self._servers[peer] = _NameServer(peer, host.strip("[]"), int(port))

    def send_request(
        self, code: int, ext: dict[str, str], on_answer: OnAnswer, now_ms: int
    ) -> None:
        """Send a request to a connected name server. If none is connected, do nothing."""
        server = next((s for s in self._servers.values() if s.is_connected), None)
        if server is not None:
            signed = self._signed_fields(server, code, ext)
            until_ms = now_ms + self._settings.register_interval_ms
            self._peers.send_request(
                server.peer, code, ext=signed, on_answer=on_answer, until_ms=until_ms
            )

    def register_again(self, now_ms: int) -> None:
        """Register again at each name server that has accepted this broker, because its answer is
        wanted. The topic table is empty, unless that would delete the topics."""
        is_whole = self._settings.registers_single_topics
        nothing = TopicFile(data_version=self._topics.version)
        file = self._topics.file() if is_whole else nothing
        for server in self._servers.values():
            if server.is_registered:
                due_ms = server.due_ms
                self._register(server, file, now_ms, is_whole=is_whole)
                server.due_ms = due_ms

    def has_dialled(self, peer: int) -> bool:
        """Whether a connection is one to a name server."""
        return peer in self._servers

    @property
    def is_registered(self) -> bool:
        """Whether at least one name server has this broker registered, or none is configured."""
        return not self._servers or any(s.is_registered for s in self._servers.values())

    @property
    def has_tried_all(self) -> bool:
        """Whether each name server has accepted the registration, or at least one attempt with it
        has failed."""
        return all(s.is_registered or s.failures_count for s in self._servers.values())

    @property
    def is_registering(self) -> bool:
        """Whether a name server is being dialled, or has not answered a registration yet."""
        return any(s.is_dialling or s.unanswered_count for s in self._servers.values())

    def connected_server(self) -> int | None:
        """Return a connected name server's peer number; None if there is none."""
        return next((s.peer for s in self._servers.values() if s.is_connected), None)

    def connected(self, peer: int, now_ms: int) -> None:
        """Register all topics at a name server that has just connected."""
        server = self._servers[peer]
        server.is_connected, server.is_dialling = True, False
        server.session, server.signed_count = "", 0
        server.retry_ms = _RETRY_MS
        if self.on_connected is not None:
            self.on_connected(now_ms)
        self._register(server, self._topics.file(), now_ms)

    def connection_failed(self, peer: int, now_ms: int) -> None:
        """Note that a name server disconnected or could not be reached; dial again after a
        back-off."""
        server = self._servers[peer]
        if server.is_registered and not self._is_leaving:
            _log.warning("%s disconnected; reconnecting", server)
        elif server.failures_count == 0 and not self._is_leaving:
            _log.warning(
                "%s is unreachable; retrying, at most %d s apart",
                server,
                _RETRY_MAX_MS // 1000,
            )
        server.failures_count += 1
        server.is_connected = server.is_dialling = server.is_registered = False
        server.due_ms = now_ms + server.retry_ms
        server.retry_ms = min(server.retry_ms * 2, _RETRY_MAX_MS)
        self._call_on_outcome()

    def wake(self, now_ms: int) -> None:
        """Dial disconnected name servers, and repeat the registration periodically."""
        for server in self._servers.values():
            if now_ms < server.due_ms:
                continue
            if server.is_connected:
                self._register(server, self._topics.file(), now_ms)
                continue
            # Also set while it is dialled: otherwise it stays due, and wakes the broker in a loop.
            server.due_ms = now_ms + _SILENT_MS
            if not server.is_dialling:
                server.is_dialling = True
                self._output.add_effect(Dial(server.peer, server.host, server.port))

    def register_changes(self, now_ms: int) -> None:
        """Register the topics that have changed since the last registration."""
        topics = self._topics
        if not topics.unregistered:
            return
        changed = {
            name: config for name in topics.unregistered if (config := topics.get(name)) is not None
        }
        # If this fails, the next connection or periodic registration reports all topics.
        topics.unregistered.clear()
        file = TopicFile(data_version=topics.version, topic_config_table=changed)
        for server in self._servers.values():
            if not server.is_connected:
                continue
            if self._settings.registers_single_topics:
                self._register_single_topics(server, file, now_ms)
            else:
                self._register(server, file, now_ms, is_whole=False)

    def wake_at_ms(self) -> int:
        """The time at which `wake` has something to do."""
        return min((server.due_ms for server in self._servers.values()), default=_NEVER_MS)

    def _register(
        self, server: _NameServer, file: TopicFile, now_ms: int, *, is_whole: bool = True
    ) -> None:
        settings = self._settings
        if settings.broker_id < 0:  # a member of a group that has no number yet
            server.due_ms = now_ms + _RETRY_MS
            return
        server.due_ms = now_ms + settings.register_interval_ms
        file = self._with_broker_permissions(file)
        parts = [file] if settings.registers_single_topics else _split_topics(file)
        for part in parts:
            self._register_part(server, part, now_ms, is_whole=is_whole and len(parts) == 1)

    def _register_single_topics(self, server: _NameServer, file: TopicFile, now_ms: int) -> None:
        if self._settings.broker_id != _MASTER_ID:
            # The request names no broker id, so a slave's topics, which may be older, or a copied
            # log's first queues of them, would replace its master's.
            return
        code = Request.REGISTER_TOPIC_IN_NAMESRV
        for name, config in self._with_broker_permissions(file).topic_config_table.items():
            queues = QueueData(
                broker_name=self._settings.name,
                perm=config.perm,
                read_queue_nums=config.read_queue_nums,
                write_queue_nums=config.write_queue_nums,
                topic_sys_flag=config.topic_sys_flag,
            )
            body = encode_route(TopicRoute(queue_datas=[queues]), is_standard=True)

            def on_reply(reply: Command | None, now_ms: int, name: str = name) -> None:
                del now_ms
                if reply is None or reply.code != Response.SUCCESS:
                    # The next periodic registration reports all topics.
                    why = "no answer" if reply is None else reply.remark
                    _log.warning("%s did not register topic %s: %s", server, name, why)

            ext = self._signed_fields(server, code, {"topic": name}, body)
            until_ms = now_ms + self._settings.register_interval_ms
            self._peers.send_request(
                server.peer, code, ext=ext, body=body, on_answer=on_reply, until_ms=until_ms
            )

    def _register_part(
        self, server: _NameServer, part: TopicFile, now_ms: int, *, is_whole: bool
    ) -> None:
        settings = self._settings
        wrapper = msgspec.to_builtins(part)
        wrapper["mappingDataVersion"] = wrapper["dataVersion"]
        wrapper["topicQueueMappingDetailMap"] = {}
        wrapper["topicQueueMappingInfoMap"] = {}
        ext = {
            "brokerName": settings.name,
            "brokerAddr": self._identity.address,
            "clusterName": settings.cluster,
            "haServerAddr": self._ha_address,
            "brokerId": str(settings.broker_id),
            "heartbeatTimeoutMillis": str(BROKER_SILENT_MS),
            "enableActingMaster": "false",
            "compressed": "false",
            "bodyCrc32": "0",
        }
        if not is_whole:
            ext[PARTIAL] = "true"
        body = fastjson.encode({"filterServerList": [], "topicConfigSerializeWrapper": wrapper})

        def on_reply(reply: Command | None, now_ms: int) -> None:
            server.unanswered_count -= 1
            if reply is not None and reply.code == Response.SUCCESS:
                self._log_registered(server)
                if self.on_accepted is not None:
                    self.on_accepted(reply.ext or {})
                self._call_on_outcome()
            elif self._signs_as and reply and reply.code == Response.ESCROW_SIGNATURE_WANTED:
                self._ask_for_session(server, now_ms)
            else:
                server.failures_count += 1
                _log.warning(
                    "%s did not register this broker: %s",
                    server,
                    "no answer" if reply is None else reply.remark,
                )
                self._call_on_outcome()

        server.unanswered_count += 1
        self._peers.send_request(
            server.peer,
            Request.REGISTER_BROKER,
            ext=self._signed_fields(server, Request.REGISTER_BROKER, ext, body),
            body=body,
            on_answer=on_reply,
            until_ms=now_ms + settings.register_interval_ms,
        )

    def _ask_for_session(self, server: _NameServer, now_ms: int) -> None:
        """Request a session from a name server of ours that requires our own signatures, then
        register again with it."""
        if server.session:
            return

        def on_reply(reply: Command | None, now_ms: int) -> None:
            session = (reply.ext or {}).get(SESSION, "") if reply is not None else ""
            if session and not server.session and server.is_connected:
                server.session = session
                self._register(server, self._topics.file(), now_ms)

        until_ms = now_ms + self._settings.register_interval_ms
        self._peers.send_request(
            server.peer, Request.ESCROW_SESSION, ext={}, on_answer=on_reply, until_ms=until_ms
        )

    def _signed_fields(
        self, server: _NameServer, code: int, ext: dict[str, str], body: bytes = b""
    ) -> dict[str, str]:
        """Return the fields with the signature of this broker's account, if it has one."""
        if self._signs_as is None:
            return ext
        key, secret = self._signs_as
        ext = {**ext, ACCESS_KEY: key}
        if server.session:
            server.signed_count += 1
            ext[NUMBER] = str(server.signed_count)
            sealed = sign_request(code, ext, body, secret=secret, session=server.session)
            return {**ext, SIGNATURE: sealed}
        return {**ext, SIGNATURE: sign_fields(ext, body, secret=secret)}

    def sign_fields(self, ext: dict[str, str]) -> dict[str, str]:
        """Return the fields of a request without a body, with the signature of this broker's
        account, if it has one."""
        if self._signs_as is None:
            return ext
        key, secret = self._signs_as
        ext = {**ext, ACCESS_KEY: key}
        return {**ext, SIGNATURE: sign_fields(ext, b"", secret=secret)}

    def _log_registered(self, server: _NameServer) -> None:
        if not server.is_registered:
            after = f", after {server.failures_count} attempts in vain"
            _log.info(
                "%s has registered %s as %s%s",
                server,
                self._settings.name,
                self._identity.address,
                after if server.failures_count else "",
            )
        server.is_registered, server.failures_count = True, 0

    def _call_on_outcome(self) -> None:
        if self.on_outcome is not None:
            self.on_outcome()

    def _with_broker_permissions(self, file: TopicFile) -> TopicFile:
        """Return the topics with their permissions restricted by the broker's own."""
        permission = self._settings.permission
        if permission & (Perm.READ | Perm.WRITE) == Perm.READ | Perm.WRITE:
            return file
        table: dict[str, TopicConfig] = {
            name: msgspec.structs.replace(config, perm=config.perm & permission)
            for name, config in file.topic_config_table.items()
        }
        return TopicFile(data_version=file.data_version, topic_config_table=table)

    def unregister(self) -> None:
        """Unregister this broker at the name servers."""
        self._is_leaving = True
        settings = self._settings
        for server in self._servers.values():
            if server.is_connected:
                ext = {
                    "brokerName": settings.name,
                    "brokerAddr": self._identity.address,
                    "clusterName": settings.cluster,
                    "brokerId": str(settings.broker_id),
                }
                code = Request.UNREGISTER_BROKER
                self._peers.send_one_way(
                    server.peer, code, ext=self._signed_fields(server, code, ext)
                )


def _split_topics(file: TopicFile) -> list[TopicFile]:
    """Split topics into parts that each fit into a frame. Each part gets a version of its own,
    because name servers ignore topics of a version that they know already; the last part gets the
    table's version."""
    topics, size = list(file.topic_config_table.items()), _TOPICS_AT_ONCE
    parts = [dict(topics[at : at + size]) for at in range(0, len(topics), size)] or [{}]
    version = file.data_version
    return [
        TopicFile(
            data_version=msgspec.structs.replace(version, timestamp=version.timestamp - left_count),
            topic_config_table=part,
        )
        for left_count, part in zip(reversed(range(len(parts))), parts, strict=True)
    ]
