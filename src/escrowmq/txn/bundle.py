"""Bundles: transactions of several messages, that is, halves of one producer group with one
transaction id.

They are ended together. Each half is in the log like any other; a property of each names the
bundle, so that a restart can restore it."""

from __future__ import annotations

import base64
import hashlib
from bisect import bisect_left, insort
from collections import OrderedDict
from typing import Final, NamedTuple

from escrowmq.base.fixed_limits import BUNDLE_MESSAGES_MAX, BUNDLE_SIZE_MAX, BUNDLES_REMEMBERED_MAX
from escrowmq.base.message import Property
from escrowmq.base.own_properties import OWNER, TRANSACTION
from escrowmq.txn.state import State

ID_SIZE_MAX: Final = 64
DIGEST_SIZE: Final = 16
"""The length of a digest, in characters."""


class BundleId(NamedTuple):
    """Identifies a bundle: its name, within a producer group and an account."""

    group: str
    text: str
    owner: str = ""
    """The mark of the account that sends the halves; empty without access control."""

    @property
    def digest(self) -> str:
        """A hash of the name, of constant size, so that an op record has space for all bundles that
        it ends."""
        name = "\0".join(self).encode("utf-8", "surrogatepass")
        return base64.urlsafe_b64encode(hashlib.sha256(name).digest()[:12]).decode()


def bundle_of(properties: dict[str, str]) -> BundleId | None:
    """Return the bundle of a half with these properties; None if it has none."""
    text = properties.get(TRANSACTION)
    if text is None:
        return None
    return BundleId(properties.get(Property.PGROUP, ""), text, properties.get(OWNER, ""))


class Bundles:
    """The pending halves of each bundle, and recently ended bundles."""

    def __init__(self) -> None:
        self._members: dict[BundleId, list[int]] = {}
        """The queue offsets of each bundle's pending halves, in the order in which they were first
        stored: each END needs the first."""
        self._numbers: dict[int, int] = {}
        """By queue offset of a copy: the queue offset of the half that was carried forward."""
        self._sizes: dict[BundleId, int] = {}
        """The total size of the bodies in each bundle, counted since the start of the process. So a
        transaction that spans a restart may have twice the limit."""
        self.by_half: dict[int, BundleId] = {}
        """By queue offset: the bundle of each half that has one. Other code only reads it."""
        self._ended: OrderedDict[str, State] = OrderedDict()
        """The outcomes of recently ended bundles, by digest."""
        self._broken: set[BundleId] = set()

    def refusal(self, bundle: BundleId, size: int = 0) -> str:
        """Return why a half of this size cannot join a bundle; empty if it can."""
        if len(bundle.text) > ID_SIZE_MAX:
            return f"{TRANSACTION} has {len(bundle.text)} characters, {ID_SIZE_MAX} are allowed"
        if not bundle.text.isprintable():
            return f"{TRANSACTION} is {bundle.text!r}; letters that can be printed are allowed"
        state = self._ended.get(bundle.digest)
        if state is not None:
            return f"transaction {bundle.text} is {state.name} already; begin another one"
        if len(self._members.get(bundle, ())) >= BUNDLE_MESSAGES_MAX:
            return f"transaction {bundle.text} has {BUNDLE_MESSAGES_MAX} messages, the most allowed"
        before = self._sizes.get(bundle, 0)
        if before + size > BUNDLE_SIZE_MAX:
            return (
                f"transaction {bundle.text} has {before} bytes in its messages, and would have "
                f"{before + size}; {BUNDLE_SIZE_MAX} are allowed: send large things apart from it"
            )
        return ""

    def add_body_size(self, queue_offset: int, size: int) -> None:
        """Add the body size of a half to its bundle's."""
        bundle = self.by_half.get(queue_offset)
        if bundle is not None:
            self._sizes[bundle] = self._sizes.get(bundle, 0) + size

    def add(self, bundle: BundleId, queue_offset: int, number: int | None = None) -> None:
        """Add a pending half to its bundle. `number` is the queue offset of the original, if the
        half is a copy: it keeps its place among the others."""
        assert queue_offset not in self.by_half, queue_offset
        if number is not None:
            self._numbers[queue_offset] = number
        insort(self._members.setdefault(bundle, []), queue_offset, key=self.number_of)
        self.by_half[queue_offset] = bundle

    def number_of(self, queue_offset: int) -> int:
        """Return the queue offset under which a half was first stored."""
        return self._numbers.get(queue_offset, queue_offset)

    def _remove_member(self, members: list[int], queue_offset: int) -> None:
        """Remove a half from the members of its bundle."""
        at = bisect_left(members, self.number_of(queue_offset), key=self.number_of)
        while members[at] != queue_offset:  # an original and its copy have one number
            at += 1
        del members[at]
        self._numbers.pop(queue_offset, None)

    def members(self, queue_offset: int) -> list[int]:
        """Return the halves that end together with this one, including it, in order."""
        bundle = self.by_half.get(queue_offset)
        return list(self._members[bundle]) if bundle is not None else [queue_offset]

    def is_first_of_bundle(self, queue_offset: int) -> bool:
        """Whether this half stands for its bundle in checks: it is the first of it."""
        bundle = self.by_half.get(queue_offset)
        return bundle is None or self._members[bundle][0] == queue_offset

    def remove(self, queue_offset: int, state: State | None) -> int | None:
        """Remove a settled half, or, if `state` is None, an unreadable one. Return the next half to
        check, if others of its bundle remain."""
        bundle = self.by_half.pop(queue_offset, None)
        if bundle is None:
            return None
        members = self._members[bundle]
        self._remove_member(members, queue_offset)
        if state is None:
            self._broken.add(bundle)
        if members:
            return members[0]
        del self._members[bundle]
        self._sizes.pop(bundle, None)
        self._broken.discard(bundle)
        if state is not None:
            self.note_ended(bundle.digest, state)
        return None

    def remove_settled_elsewhere(self, queue_offset: int) -> None:
        """Remove a half that another broker settled, without recording an outcome of the bundle."""
        bundle = self.by_half.pop(queue_offset, None)
        if bundle is not None:
            members = self._members[bundle]
            self._remove_member(members, queue_offset)
            if not members:
                del self._members[bundle]
                self._sizes.pop(bundle, None)
                self._broken.discard(bundle)

    def note_ended(self, digest: str, state: State) -> None:
        """Record the outcome of a bundle, so that no half can join it later."""
        self._ended[digest] = state
        self._ended.move_to_end(digest)
        while len(self._ended) > BUNDLES_REMEMBERED_MAX:
            self._ended.popitem(last=False)

    def remove_replaced(self, queue_offset: int) -> None:
        """Remove a half that was replaced by its copy. The copy must be a member already, and takes
        its place, also that of the half to check."""
        bundle = self.by_half.pop(queue_offset, None)
        if bundle is not None:
            members = self._members[bundle]
            assert len(members) > 1, "the half that stands for it is there"
            self._remove_member(members, queue_offset)

    def note_broken(self, bundle: BundleId | None) -> None:
        """Note that a half of a bundle, if it has one, is unreadable and was never added."""
        if bundle is not None:
            self._broken.add(bundle)

    def is_broken(self, bundle: BundleId) -> bool:
        """Whether a half of a bundle is unreadable, so that the bundle can only be rolled back."""
        return bundle in self._broken

    def reopen(self, bundle: BundleId) -> None:
        """Forget that a bundle has ended, because its end was undone."""
        self._ended.pop(bundle.digest, None)
