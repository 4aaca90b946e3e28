"""Detects two masters with the same name: both would accept messages, and clients would be routed
to the one that registered last. Both log the conflict repeatedly until one is stopped."""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.base.log_throttle import RepeatedErrors
from escrowmq.broker.identity import Identity
from escrowmq.broker.part import Part
from escrowmq.broker.upkeep.nameserver_registration import Registration
from escrowmq.codec.client_bodies import decode_body
from escrowmq.errors import EscrowMQError

_log = logging.getLogger(__name__)

LOOK_MS: Final = 7_000
"""The pause between requests for the registered master. Each master registers every 30 s, so
between these times one of the two sees the other's address."""


class _RegisteredBroker(msgspec.Struct, rename="camel"):
    broker_addrs: dict[str, str] = {}


class _RouteAnswer(msgspec.Struct, rename="camel"):
    broker_member_group: _RegisteredBroker | None = None


class RivalDetector(Part):
    """Detects another master with this broker's name, by asking a name server who is registered."""

    name = "other masters"

    def __init__(
        self, settings: BrokerSettings, identity: Identity, registration: Registration
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._registration = registration
        self._said = RepeatedErrors()
        self._look_ms = 0
        self.rival = ""
        """The address of the other master; empty when there is none."""
        registration.on_connected = self._request_master

    def wake(self, now_ms: int) -> None:
        """Request the registered master from a name server, if it is time."""
        if now_ms >= self._look_ms:
            self._look_ms = now_ms + LOOK_MS
            self._request_master(now_ms)

    def wake_at_ms(self) -> int:
        """The time of the next request."""
        return self._look_ms

    def _request_master(self, now_ms: int) -> None:
        ext = {"clusterName": self._settings.cluster, "brokerName": self._settings.name}
        self._registration.send_request(
            Request.GET_BROKER_MEMBER_GROUP, ext, self._on_reply, now_ms
        )

    def _on_reply(self, reply: Command | None, now_ms: int) -> None:
        if reply is None or reply.code != Response.SUCCESS or not reply.body:
            return
        try:
            group = decode_body(_RouteAnswer, reply.body).broker_member_group
        except EscrowMQError:
            return
        master = "" if group is None else group.broker_addrs.get("0", "")
        self.rival = master if master != self._identity.address else ""
        if not self.rival:
            return
        ending = self._said.suppressed_note(self.rival, now_ms)
        if ending is not None:
            _log.error(
                "%s is registered as the master of %s, and so is this broker, at %s: both "
                    "accept messages that the other does not have. Stop one of them%s",
                self.rival, self._settings.name, self._identity.address, ending,
            )  # fmt: skip
