"""The blocking admin client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from escrowmq.client.admin import (
    access,
    brokers,
    diagnosis,
    groups,
    messages,
    offsets,
    replicas,
    topics,
    transactions,
)
from escrowmq.client.admin import admin as engine
from escrowmq.client.blocking.face import Face, Served, plain, plain_face, plain_iterator
from escrowmq.client.producer_settings import ConnectionSettings


class Access(Face[access.Access]):
    """Users and policies: `Admin.access`."""

    users = plain(access.Access.users)
    create_user = plain(access.Access.create_user)
    update_user = plain(access.Access.update_user)
    delete_user = plain(access.Access.delete_user)
    policies = plain(access.Access.policies)
    put_policy = plain(access.Access.put_policy)
    delete_policy = plain(access.Access.delete_policy)
    explain = plain(access.Access.explain)


class Brokers(Face[brokers.Brokers]):
    """Brokers and their settings: `Admin.brokers`."""

    all = plain(brokers.Brokers.all)
    gone = plain(brokers.Brokers.gone)
    missing = plain(brokers.Brokers.missing)
    runtime = plain(brokers.Brokers.runtime)
    producers = plain(brokers.Brokers.producers)
    replicas = plain(brokers.Brokers.replicas)
    config = plain(brokers.Brokers.config)
    changes = plain(brokers.Brokers.changes)
    configure = plain(brokers.Brokers.configure)


class Diagnosis(Face[diagnosis.Diagnosis]):
    """`Admin.diagnosis`."""

    message = plain(diagnosis.Diagnosis.message)
    cluster = plain(diagnosis.Diagnosis.cluster)
    events = plain(diagnosis.Diagnosis.events)


class Groups(Face[groups.Groups]):
    """Consumer groups: `Admin.groups`."""

    names = plain(groups.Groups.names)
    describe = plain(groups.Groups.describe)
    create = plain(groups.Groups.create)
    update = plain(groups.Groups.update)
    delete = plain(groups.Groups.delete)
    members = plain(groups.Groups.members)
    lag = plain(groups.Groups.lag)
    redeliver_dead = plain_iterator(groups.Groups.redeliver_dead)


class Messages(Face[messages.Messages]):
    """Stored messages: `Admin.messages`."""

    get = plain(messages.Messages.get)
    prepared = plain(messages.Messages.prepared)
    find = plain(messages.Messages.find)
    at = plain(messages.Messages.at)
    send = plain(messages.Messages.send)
    resend = plain(messages.Messages.resend)
    deliver = plain(messages.Messages.deliver)


class Offsets(Face[offsets.Offsets]):
    """Offsets of groups: `Admin.offsets`."""

    show = plain(offsets.Offsets.show)
    reset = plain(offsets.Offsets.reset)
    preview = plain(offsets.Offsets.preview)
    check_set = plain(offsets.Offsets.check_set)
    set = plain(offsets.Offsets.set)
    clone = plain(offsets.Offsets.clone)


class Replicas(Face[replicas.Replicas]):
    """Brokers and their copies: `Admin.replicas`."""

    status = plain(replicas.Replicas.status)
    group = plain(replicas.Replicas.group)
    report = plain(replicas.Replicas.report)
    switch = plain(replicas.Replicas.switch)
    rebuild = plain(replicas.Replicas.rebuild)
    drill = plain(replicas.Replicas.drill)
    reports = plain(replicas.Replicas.reports)


class Topics(Face[topics.Topics]):
    """Topics of the cluster: `Admin.topics`."""

    names = plain(topics.Topics.names)
    describe = plain(topics.Topics.describe)
    create = plain(topics.Topics.create)
    update = plain(topics.Topics.update)
    delete = plain(topics.Topics.delete)


class Transactions(Face[transactions.Transactions]):
    """Pending and discarded transactions: `Admin.transactions`."""

    pending = plain_iterator(transactions.Transactions.pending)
    count = plain(transactions.Transactions.count)
    show = plain(transactions.Transactions.show)
    commit = plain(transactions.Transactions.commit)
    rollback = plain(transactions.Transactions.rollback)
    check = plain(transactions.Transactions.check)
    discarded = plain_iterator(transactions.Transactions.discarded)
    resume = plain(transactions.Transactions.resume)
    rotate_key = plain(transactions.Transactions.rotate_key)


@plain_face()
class Admin(Served[engine.Admin]):
    """Reads and changes a cluster, for operators. It is open once it is made; close it, or use it
    with `with`.

    >>> with escrowmq.Admin(nameserver) as admin:
    ...     admin.topics.create("paid", queues=8)
    ...     "paid" in admin.topics.names()
    True

    `name_servers` is `host:port`, several separated by `;`; None means the environment variable
    NAMESRV_ADDR. Settings are those of `ClientOptions`."""

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        **settings: Unpack[ConnectionSettings],
    ) -> None:
        inner = engine.Admin(name_servers, **settings)
        self._inner = inner
        self._is_closed = False
        self._portal = portal = self._join()
        self.access = Access(portal, inner.access)
        self.brokers = Brokers(portal, inner.brokers)
        self.diagnosis = Diagnosis(portal, inner.diagnosis)
        self.groups = Groups(portal, inner.groups)
        self.messages = Messages(portal, inner.messages)
        self.offsets = Offsets(portal, inner.offsets)
        self.replicas = Replicas(portal, inner.replicas)
        self.topics = Topics(portal, inner.topics)
        self.transactions = Transactions(portal, inner.transactions)
        try:
            portal.call(inner.open())
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return repr(self._inner).replace("<aio.", "<", 1)
