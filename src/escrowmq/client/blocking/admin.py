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
from escrowmq.client.blocking.face import (
    BlockingClient,
    Face,
    blocking_iterator,
    blocking_method,
    shorten_tracebacks,
)
from escrowmq.client.producer_settings import ConnectionSettings


class Access(Face[access.Access]):
    """Users and policies: `Admin.access`."""

    users = blocking_method(access.Access.users)
    create_user = blocking_method(access.Access.create_user)
    update_user = blocking_method(access.Access.update_user)
    delete_user = blocking_method(access.Access.delete_user)
    policies = blocking_method(access.Access.policies)
    put_policy = blocking_method(access.Access.put_policy)
    delete_policy = blocking_method(access.Access.delete_policy)
    explain = blocking_method(access.Access.explain)


class Brokers(Face[brokers.Brokers]):
    """Brokers and their settings: `Admin.brokers`."""

    all = blocking_method(brokers.Brokers.all)
    gone = blocking_method(brokers.Brokers.gone)
    missing = blocking_method(brokers.Brokers.missing)
    runtime = blocking_method(brokers.Brokers.runtime)
    producers = blocking_method(brokers.Brokers.producers)
    replicas = blocking_method(brokers.Brokers.replicas)
    config = blocking_method(brokers.Brokers.config)
    changes = blocking_method(brokers.Brokers.changes)
    configure = blocking_method(brokers.Brokers.configure)


class Diagnosis(Face[diagnosis.Diagnosis]):
    """Explanations of a message's fate and of the cluster's problems: `Admin.diagnosis`."""

    message = blocking_method(diagnosis.Diagnosis.message)
    cluster = blocking_method(diagnosis.Diagnosis.cluster)
    events = blocking_method(diagnosis.Diagnosis.events)


class Groups(Face[groups.Groups]):
    """Consumer groups: `Admin.groups`."""

    names = blocking_method(groups.Groups.names)
    describe = blocking_method(groups.Groups.describe)
    create = blocking_method(groups.Groups.create)
    update = blocking_method(groups.Groups.update)
    delete = blocking_method(groups.Groups.delete)
    members = blocking_method(groups.Groups.members)
    lag = blocking_method(groups.Groups.lag)
    redeliver_dead = blocking_iterator(groups.Groups.redeliver_dead)


class Messages(Face[messages.Messages]):
    """Stored messages: `Admin.messages`."""

    get = blocking_method(messages.Messages.get)
    prepared = blocking_method(messages.Messages.prepared)
    find = blocking_method(messages.Messages.find)
    at = blocking_method(messages.Messages.at)
    send = blocking_method(messages.Messages.send)
    resend = blocking_method(messages.Messages.resend)
    deliver = blocking_method(messages.Messages.deliver)


class Offsets(Face[offsets.Offsets]):
    """Offsets of consumer groups: `Admin.offsets`."""

    show = blocking_method(offsets.Offsets.show)
    reset = blocking_method(offsets.Offsets.reset)
    preview = blocking_method(offsets.Offsets.preview)
    check_set = blocking_method(offsets.Offsets.check_set)
    set = blocking_method(offsets.Offsets.set)
    clone = blocking_method(offsets.Offsets.clone)


class Replicas(Face[replicas.Replicas]):
    """Replicas of brokers: `Admin.replicas`."""

    status = blocking_method(replicas.Replicas.status)
    group = blocking_method(replicas.Replicas.group)
    report = blocking_method(replicas.Replicas.report)
    switch = blocking_method(replicas.Replicas.switch)
    rebuild = blocking_method(replicas.Replicas.rebuild)
    drill = blocking_method(replicas.Replicas.drill)
    reports = blocking_method(replicas.Replicas.reports)


class Topics(Face[topics.Topics]):
    """Topics of the cluster: `Admin.topics`."""

    names = blocking_method(topics.Topics.names)
    describe = blocking_method(topics.Topics.describe)
    create = blocking_method(topics.Topics.create)
    update = blocking_method(topics.Topics.update)
    delete = blocking_method(topics.Topics.delete)


class Transactions(Face[transactions.Transactions]):
    """Pending and discarded transactions: `Admin.transactions`."""

    pending = blocking_iterator(transactions.Transactions.pending)
    count = blocking_method(transactions.Transactions.count)
    show = blocking_method(transactions.Transactions.show)
    commit = blocking_method(transactions.Transactions.commit)
    rollback = blocking_method(transactions.Transactions.rollback)
    check = blocking_method(transactions.Transactions.check)
    discarded = blocking_iterator(transactions.Transactions.discarded)
    resume = blocking_method(transactions.Transactions.resume)
    rotate_key = blocking_method(transactions.Transactions.rotate_key)


@shorten_tracebacks()
class Admin(BlockingClient[engine.Admin]):
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
        self._portal = portal = self._join_event_loop()
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
