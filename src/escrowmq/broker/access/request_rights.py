"""Computes on demand which rights a request requires of its sender."""

from __future__ import annotations

from escrowmq.acl import request_needs, rocketmq_rights
from escrowmq.acl.acl2_accesses import accesses_of
from escrowmq.acl.acl2_policies import Access
from escrowmq.acl.request_needs import AdminNeeded, Need, StoredDataLookup
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.broker.incoming_request import Question


class RequestRights:
    """The rights that one request requires: by its row and the stored data, or by RocketMQ's rules
    if a setting says so."""

    def __init__(
        self, request: Question, places: StoredDataLookup, settings: BrokerSettings
    ) -> None:
        self._request = request
        self._places = places
        self._settings = settings

    @property
    def changes_rights(self) -> bool:
        """Whether the request changes rights."""
        return self._request.row.rule.changes_rights

    def needs(self) -> AdminNeeded | list[Need]:
        """The rights that a request needs under ACL 1.0."""
        command = self._request.command
        if self._settings.acl_as_rocketmq:
            return rocketmq_rights.rocketmq_needs(command)
        return request_needs.needs_of(self._request.row.rule.needs, command, self._places)

    def accesses(self) -> list[Access]:
        """The rights that a request needs under ACL 2.0."""
        command, cluster = self._request.command, self._settings.cluster
        if self._settings.acl_as_rocketmq:
            return rocketmq_rights.rocketmq_accesses(command, cluster=cluster)
        return accesses_of(self._request.row.rule, command, self._places, cluster=cluster)
