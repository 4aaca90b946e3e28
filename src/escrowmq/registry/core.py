"""The name server's core: takes frames, and queues effects."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from escrowmq.base.background_rounds import BackgroundRounds
from escrowmq.base.codes import Flag, Request, Response
from escrowmq.base.command import Command
from escrowmq.base.effects import Close, Effect, Hold, Send
from escrowmq.base.fixed_limits import (
    ANSWERS_AHEAD_MAX,
    ASKED_AT_ONCE_MAX,
    FRAME_SIZE_MAX,
    HALF_FRAMES_SIZE_MAX,
    QUERY_FRAME_SIZE_MAX,
    STRANGERS_HALF_FRAMES_SIZE_MAX,
)
from escrowmq.base.log_throttle import LogThrottle
from escrowmq.base.measure import MetricFamily
from escrowmq.base.nameserver_settings import NameServerGuardSettings, NameServerSettings
from escrowmq.base.ports import Disk
from escrowmq.base.wire import Wire
from escrowmq.codec.command import encode_reply
from escrowmq.codec.frame import FrameReader, FrameTimeouts, PartialFrames
from escrowmq.codec.key_value_line import format_audit_line
from escrowmq.codec.own_signature import SESSION
from escrowmq.codec.signature import ACCESS_KEY
from escrowmq.errors import EscrowMQError
from escrowmq.registry import on_admin, on_broker, on_client
from escrowmq.registry.guard import GuardedConnection, RegistryGuard
from escrowmq.registry.handler_values import RegistryAnswer, RegistryRequest, RegistryState
from escrowmq.registry.kv_config import KV_PATH, KvConfig
from escrowmq.registry.metrics import RequestCounts, metric_families
from escrowmq.registry.route_table import RouteTable
from escrowmq.registry.settings_file import SettingsFile

_log = logging.getLogger(__name__)
_audit = logging.getLogger("escrowmq.audit")

_LINES_SPAN_MS: Final = 60_000
_KINDS_MAX: Final = 64
"""Limit of the kinds of bad requests that are logged separately, each once a minute."""

_REMARK_SIZE_MAX: Final = 1_024

Handler = Callable[[RegistryState, RegistryRequest], RegistryAnswer]

HANDLERS: Final[dict[int, Handler]] = {
    Request.PUT_KV_CONFIG: on_admin.put_kv,
    Request.GET_KV_CONFIG: on_admin.get_kv,
    Request.DELETE_KV_CONFIG: on_admin.delete_kv,
    Request.GET_KVLIST_BY_NAMESPACE: on_admin.list_kv,
    Request.REGISTER_BROKER: on_broker.register,
    Request.UNREGISTER_BROKER: on_broker.unregister,
    Request.BROKER_HEARTBEAT: on_broker.heartbeat,
    Request.QUERY_DATA_VERSION: on_broker.query_version,
    Request.GET_BROKER_MEMBER_GROUP: on_broker.member_group,
    Request.GET_ROUTEINFO_BY_TOPIC: on_client.get_route,
    Request.GET_BROKER_CLUSTER_INFO: on_client.cluster_info,
    Request.ESCROW_GONE_BROKERS: on_client.gone_brokers,
    Request.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: on_client.all_topics,
    Request.GET_TOPICS_BY_CLUSTER: on_client.topics_of_cluster,
    Request.GET_SYSTEM_TOPIC_LIST_FROM_NS: on_client.system_topics,
    Request.GET_UNIT_TOPIC_LIST: on_client.unit_topics,
    Request.GET_HAS_UNIT_SUB_TOPIC_LIST: on_client.unit_subscribed_topics,
    Request.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: on_client.subscribed_not_unit_topics,
    Request.WIPE_WRITE_PERM_OF_BROKER: on_admin.remove_write_permission,
    Request.ADD_WRITE_PERM_OF_BROKER: on_admin.restore_write_permission,
    Request.DELETE_TOPIC_IN_NAMESRV: on_admin.delete_topic,
    Request.REGISTER_TOPIC_IN_NAMESRV: on_admin.register_topic,
    Request.UPDATE_NAMESRV_CONFIG: on_admin.update_config,
    Request.GET_NAMESRV_CONFIG: on_admin.get_config,
}


def _request_label(code: int) -> str:
    """Return the metric's label for a request code. Unknown codes share one label, because a client
    may send any code."""
    return str(code) if code in HANDLERS else "other"


class RegistryCore:
    """A name server as a state machine (`base.core.Core`)."""

    def __init__(
        self,
        settings: NameServerSettings,
        disk: Disk | None = None,
        *,
        started_ms: int,
        kv_path: str = KV_PATH,
        guard: RegistryGuard | None = None,
    ) -> None:
        config = SettingsFile(settings, disk)
        self.state = RegistryState(
            settings,
            RouteTable(settings),
            kv=KvConfig(disk, kv_path),
            config=config,
            started_ms=started_ms,
        )
        self._guard = guard or RegistryGuard(NameServerGuardSettings())
        self._guard.load(started_ms)
        self._readers: dict[int, FrameReader] = {}
        self._visitors: dict[int, GuardedConnection] = {}
        self._half_frames = PartialFrames(HALF_FRAMES_SIZE_MAX)
        self._strangers_half_frames = PartialFrames(STRANGERS_HALF_FRAMES_SIZE_MAX)
        self._seldom = LogThrottle(lines_max=1, span_ms=_LINES_SPAN_MS, kinds_max=_KINDS_MAX)
        self._brokers: set[int] = set()
        self._effects: list[Effect] = []
        self._watch = FrameTimeouts()
        self._scan_at_ms = started_ms + settings.scan_interval_ms
        self._look_at_ms = self._scan_at_ms
        self._asks = RequestCounts()
        self.rounds = BackgroundRounds()
        self.rounds.add("silent brokers", self._expire, lambda: self._scan_at_ms)
        self.rounds.add("frames", self._close_slow_frames, lambda: self._look_at_ms)
        self.rounds.add("accounts", self._guard.wake, self._guard.wake_at_ms)

    def connected(
        self, peer: int, host: str, port: int, now_ms: int, wire: Wire = Wire.REMOTING
    ) -> None:
        """Add a connected peer."""
        self._visitors[peer] = GuardedConnection(host)
        if self._guard.trusts(host):
            self._readers[peer] = FrameReader(self._half_frames)
            return
        # A broker's first request may be its registration, which is large if it has many topics.
        size_max = FRAME_SIZE_MAX if self._guard.may_admit_strangers else QUERY_FRAME_SIZE_MAX
        self._readers[peer] = FrameReader(self._strangers_half_frames, frame_size_max=size_max)

    def set_certificate_account(self, peer: int, account: str) -> None:
        """Record that a peer has proved an account by its certificate (base.core.AccountsCore)."""
        if self._guard.is_by_accounts:
            self._visitors[peer].identity = account

    def receive(self, peer: int, data: bytes, now_ms: int, waited_ms: int = 0) -> None:
        """Process bytes from a peer; queue replies, or close it."""
        reader = self._readers.get(peer)
        if reader is None:
            return
        replies = []
        at = count = size = 0
        data = reader.bytes_to_read(data)
        while (found := reader.next_command(data, at)) is not None:
            command, at = found
            count += 1
            if command.flag & Flag.REPLY:
                continue  # this side asks nothing, so that a reply is a stray
            reply = self._encoded_refusal(command, peer, now_ms) or self._serve(
                command, peer, now_ms
            )
            if reply and not command.flag & Flag.ONE_WAY:
                replies.append(reply)
                size += len(reply)
            if (size > ANSWERS_AHEAD_MAX or count == ASKED_AT_ONCE_MAX) and at < len(data):
                reader.put_back(data, at)
                break
        if replies:
            self._effects.append(Send(peer, replies))
        if reader.has_put_back:
            self._effects.append(Hold(peer))
        elif reader.broken is not None:
            self._close(peer, str(reader.broken), now_ms)

    def _encoded_refusal(self, command: Command, peer: int, now_ms: int) -> bytes:
        """Return the encoded answer to a request that is not allowed, or that needs a session
        first; empty if the request is allowed."""
        visitor = self._visitors[peer]
        if command.code == Request.ESCROW_SESSION and (session := self._guard.session_of(visitor)):
            return encode_reply(command, Response.SUCCESS, ext={SESSION: session})
        denial = self._guard.refusal(visitor, command)
        (self._asks.refused if denial else self._asks.requests).add(_request_label(command.code))
        if denial is None:
            return b""
        if self._seldom.may_write(f"refused request {command.code}", now_ms):
            key = (command.ext or {}).get(ACCESS_KEY, "")
            fields = {
                "peer": visitor.host,
                "account": key,
                "code": command.code,
                "reason": denial.reason,
            }
            _audit.info("%s", format_audit_line("denial", fields))
        return encode_reply(command, denial.code, remark=denial.reason)

    def _serve(self, command: Command, peer: int, now_ms: int) -> bytes:
        handler = HANDLERS.get(command.code)
        if handler is None:
            text = f" request type {command.code} not supported"
            return encode_reply(command, Response.REQUEST_CODE_NOT_SUPPORTED, remark=text)
        if command.code == Request.REGISTER_BROKER:
            self._brokers.add(peer)
        try:
            answer = handler(self.state, RegistryRequest(command, peer, now_ms))
            return encode_reply(
                command, answer.code, ext=answer.ext, body=answer.body, remark=answer.remark
            )
        except (EscrowMQError, OSError) as error:
            if self._seldom.may_write(f"bad request {command.code}", now_ms):
                _log.warning(
                    "request %d of %s: %.512r", command.code, self._visitors[peer].host, str(error)
                )
            remark = str(error)[:_REMARK_SIZE_MAX]
            return encode_reply(command, Response.SYSTEM_ERROR, remark=remark)
        except Exception as error:  # noqa: BLE001 - one peer's request must not end the others'
            if self._seldom.may_write(f"failed request {command.code}", now_ms):
                _log.exception("request %d of %s", command.code, self._visitors[peer].host)
            remark = repr(error)[:_REMARK_SIZE_MAX]
            return encode_reply(command, Response.SYSTEM_ERROR, remark=remark)

    def _close(self, peer: int, reason: str, now_ms: int) -> None:
        self._effects.append(Close(peer, reason))
        self.disconnected(peer, now_ms)

    def disconnected(self, peer: int, now_ms: int) -> None:
        """Remove a lost peer, and its brokers with it, immediately."""
        reader = self._readers.pop(peer, None)
        if reader is not None:
            reader.release_space()
        self._visitors.pop(peer, None)
        if peer in self._brokers:
            self._brokers.discard(peer)
            count = self.state.routes.remove_connection(peer, now_ms)
            if count:
                _log.info("peer %d disconnected: %d brokers unregistered", peer, count)

    def sync_finished(self, log_offset: int, now_ms: int) -> None:
        """Do nothing: a name server requests no Sync effects."""

    def sync_failed(self, reason: str, now_ms: int) -> None:
        """Do nothing: a name server requests no Sync effects."""

    def wake(self, now_ms: int) -> None:
        """Remove silent brokers, and close peers with incomplete frames."""
        self.rounds.wake(now_ms)

    def clock_leapt(self, by_ms: int) -> None:
        """Shift all timers by a forward jump of the clock, so that no broker is removed because of
        it."""
        _log.warning("the clock was set forward by %.1f s", by_ms / 1000)
        self.state.routes.live.clock_leapt(by_ms)

    def _expire(self, now_ms: int) -> None:
        if now_ms >= self._scan_at_ms:
            self._scan_at_ms = now_ms + self.state.settings.scan_interval_ms
            for peer in dict.fromkeys(self.state.routes.expire(now_ms)):
                self._close(peer, "its broker was silent for too long", now_ms)

    def _close_slow_frames(self, now_ms: int) -> None:
        if now_ms >= self._look_at_ms:
            self._look_at_ms = now_ms + self.state.settings.scan_interval_ms
            for kind, count in self._seldom.take_suppressed(now_ms):
                _log.warning("%d more of %s", count, kind)
            for peer in self._watch.overdue_peers(self._readers.items(), now_ms):
                self._close(peer, "a frame was begun and not ended", now_ms)

    def measure(self) -> list[MetricFamily]:
        """Return the name server's metrics."""
        routes, connections = self.state.routes, len(self._visitors)
        found = metric_families(
            routes, connections=connections, asks=self._asks, rounds=self.rounds
        )
        return list(found)

    def wake_at_ms(self) -> int:
        """Return when to call `wake` next."""
        return self.rounds.wake_at_ms()

    def take_effects(self) -> list[Effect]:
        """Return, and forget, the queued effects."""
        effects, self._effects = self._effects, []
        return effects
