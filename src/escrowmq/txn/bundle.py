"""Transactions of several messages: halves of one producer group with one transaction id.

They are ended together. Each half is in the log as any other; that they belong together stands in
a property of each, so that a restart finds it out again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from escrowmq.base.extensions import OWNER, TRANSACTION
from escrowmq.base.limits import BUNDLE_MESSAGES_MAX, BUNDLES_REMEMBERED_MAX
from escrowmq.base.message import Property
from escrowmq.txn.state import State

ID_SIZE_MAX: Final = 64


class BundleId(NamedTuple):
    """Names of one group are another's business, and those of one account another's."""

    group: str
    text: str
    owner: str = ""
    """Mark of the account that sends the halves; empty where nobody has to prove who he is."""


def bundle_of(properties: dict[str, str]) -> BundleId | None:
    """The transaction of several messages that a half belongs to; None when to none."""
    text = properties.get(TRANSACTION)
    if text is None:
        return None
    return BundleId(properties.get(Property.PGROUP, ""), text, properties.get(OWNER, ""))


class Bundles:
    """Which pending halves belong together, and which transactions have ended lately."""

    def __init__(self) -> None:
        self._members: dict[BundleId, list[int]] = {}
        self._of: dict[int, BundleId] = {}
        self._ended: OrderedDict[BundleId, State] = OrderedDict()
        self._broken: set[BundleId] = set()

    def __contains__(self, queue_offset: int) -> bool:
        return queue_offset in self._of

    def refusal(self, bundle: BundleId) -> str:
        """Why no half can join; empty when it can."""
        if len(bundle.text) > ID_SIZE_MAX:
            return f"{TRANSACTION} has {len(bundle.text)} characters, {ID_SIZE_MAX} are allowed"
        if not bundle.text.isprintable():
            return f"{TRANSACTION} is {bundle.text!r}; letters that can be printed are allowed"
        state = self._ended.get(bundle)
        if state is not None:
            return f"transaction {bundle.text} is {state.name} already; begin another one"
        if len(self._members.get(bundle, ())) >= BUNDLE_MESSAGES_MAX:
            return f"transaction {bundle.text} has {BUNDLE_MESSAGES_MAX} messages, the most allowed"
        return ""

    def add(self, bundle: BundleId, queue_offset: int) -> None:
        """A half of a transaction is pending."""
        self._members.setdefault(bundle, []).append(queue_offset)
        self._of[queue_offset] = bundle

    def of(self, queue_offset: int) -> BundleId | None:
        """The transaction of a half; None when it is one of its own."""
        return self._of.get(queue_offset)

    def members(self, queue_offset: int) -> list[int]:
        """The halves that are ended together with this one, itself among them, in order."""
        bundle = self._of.get(queue_offset)
        return sorted(self._members[bundle]) if bundle is not None else [queue_offset]

    def leads(self, queue_offset: int) -> bool:
        """Whether this is the half that a check asks about."""
        bundle = self._of.get(queue_offset)
        return bundle is None or min(self._members[bundle]) == queue_offset

    def remove(self, queue_offset: int, state: State | None) -> int | None:
        """A half is settled, or (without a state) cannot be read any more; the half that leads
        from now on, if others are left."""
        bundle = self._of.pop(queue_offset, None)
        if bundle is None:
            return None
        members = self._members[bundle]
        members.remove(queue_offset)
        if state is None:
            self._broken.add(bundle)
        if members:
            return min(members)
        del self._members[bundle]
        self._broken.discard(bundle)
        if state is not None:
            self._ended[bundle] = state
            self._ended.move_to_end(bundle)
            while len(self._ended) > BUNDLES_REMEMBERED_MAX:
                self._ended.popitem(last=False)
        return None

    def leave(self, queue_offset: int) -> None:
        """Another half stands for this one from now on; it is among the members already."""
        bundle = self._of.pop(queue_offset, None)
        if bundle is not None:
            self._members[bundle].remove(queue_offset)

    def is_broken(self, queue_offset: int) -> bool:
        """Whether a half of the same transaction cannot be read: it can only be rolled back."""
        return self._of.get(queue_offset) in self._broken

    def reopen(self, bundle: BundleId) -> None:
        """The end of a transaction was undone."""
        self._ended.pop(bundle, None)
