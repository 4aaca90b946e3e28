"""Compiles the subscriptions of consumers into selectors of messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from escrowmq.base.fixed_limits import SELECTORS_SIZE_MAX, SQL_TOKENS_MAX, SUBSCRIPTION_SIZE_MAX
from escrowmq.codec.client_bodies import SubscriptionBody
from escrowmq.codec.hashes import tags_code
from escrowmq.codec.record import decode_record
from escrowmq.filter.evaluate import Truth
from escrowmq.filter.grammar import compile_sql_uncached
from escrowmq.filter.operands import FilterError
from escrowmq.filter.tags import ALL, parse_tags

TAG: Final = "TAG"


_TESTS_US: Final = 20_000
"""The time, in microseconds, that one read may spend on testing records against a filter. After
that it is answered, or continues after the other connections' turns."""

_TEST_US: Final = 25
"""The time to decode a record for a test against a filter, in microseconds."""

_LETTER_US: Final = 0.015
"""The time to evaluate an expression, in microseconds per character: 200 µs for one of 14 000
(measured)."""


class Selector(msgspec.Struct, frozen=True):
    """Selects the messages of a subscription: by tag codes of the consume queue, by a test of the
    record, or all."""

    codes: frozenset[int] | None = None
    accept: Callable[[bytes], bool] | None = None
    tested_max: int = 0
    """The most records that one read tests; 0 when none is tested."""

    def wants(self, tags_code: int, read: Callable[[], bytes]) -> bool:
        """Whether a message that just arrived is selected. `read` returns its record."""
        if self.codes is not None:
            return tags_code in self.codes
        return self.accept is None or self.accept(read())


EVERYTHING: Final = Selector()


def is_tag_expression(expression_type: str | None) -> bool:
    """Whether an expression is a list of tags. Old clients give no type and mean tags."""
    return not expression_type or expression_type == TAG


def tag_selector(expression: str | None) -> Selector:
    """Return the selector of an expression of tags. Raises FilterError when it is invalid."""
    found = parse_tags(expression, code_of=tags_code)
    return EVERYTHING if found.is_all else Selector(codes=found.codes)


def sql_selector(predicate: Truth, *, size: int) -> Selector:
    """Return the selector of a compiled SQL92 expression over a message's properties. `size` is the
    expression's length."""

    def accept(record: bytes) -> bool:
        return predicate(decode_record(record).properties) is True

    tested_max = int(_TESTS_US / (_TEST_US + size * _LETTER_US))
    return Selector(accept=accept, tested_max=tested_max)


def subscription_of(
    topic: str, expression_type: str | None, expression: str, version: int
) -> SubscriptionBody:
    """Return the subscription that a heartbeat would contain for a client that reads a topic by a
    valid expression."""
    found = SubscriptionBody(
        topic=topic,
        expression_type=expression_type or TAG,
        sub_string=expression,
        sub_version=version,
    )
    if is_tag_expression(expression_type):
        tags = sorted(parse_tags(expression, code_of=tags_code).tags)
        found.tags_set = tags
        found.code_set = [tags_code(tag) for tag in tags]
    return found


class SelectorCache:
    """Cache of the selectors of subscriptions, each compiled once."""

    def __init__(self, kept_max: int = 4096) -> None:
        self._kept: dict[tuple[str | None, str | None], Selector] = {}
        self._kept_max = kept_max
        self._kept_size = 0

    def selector_of(self, expression_type: str | None, expression: str | None) -> Selector:
        """Return the selector of an expression. Raises FilterError when it is invalid or too
        long."""
        key = (expression_type, expression)
        selector = self._kept.get(key)
        return self._compile_selector(key) if selector is None else selector

    def _compile_selector(self, key: tuple[str | None, str | None]) -> Selector:
        expression_type, expression = key
        size = len(expression or "") + len(expression_type or "")
        if size > SUBSCRIPTION_SIZE_MAX:
            raise FilterError(
                f"an expression of {size} characters; {SUBSCRIPTION_SIZE_MAX} are allowed, select "
                "by a property that many messages share",
                SUBSCRIPTION_SIZE_MAX,
            )
        if is_tag_expression(expression_type):
            selector = tag_selector(expression)
        else:
            predicate = compile_sql_uncached(expression or "", tokens_max=SQL_TOKENS_MAX)
            selector = sql_selector(predicate, size=size)
        if len(self._kept) >= self._kept_max or self._kept_size + size > SELECTORS_SIZE_MAX:
            self._kept.clear()
            self._kept_size = 0
        self._kept[key] = selector
        self._kept_size += size
        return selector

    def selector_of_subscription(self, subscription: SubscriptionBody) -> Selector:
        """Return the selector of a subscription from a heartbeat."""
        if subscription.class_filter_mode:
            return EVERYTHING
        return self.selector_of(subscription.expression_type, subscription.sub_string or ALL)
