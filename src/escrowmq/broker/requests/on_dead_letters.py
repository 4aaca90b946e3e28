"""Redelivers dead letters of a group to that group (docs/extensions.md).

A copy of the letter goes to a topic that only the group reads: its retry topic, or, for popped
messages, the group's retry topic for the letter's topic. The copy names its letter, so that a
letter that was redelivered already is recognised, even after a crash and for any client. No state
outside the log is needed."""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from escrowmq.base.answer import Answer, Refusal, Reply
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.message import Message, Property, StoredMessage, Topic
from escrowmq.base.own_properties import DEAD_LETTER
from escrowmq.broker.identity import Identity
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.broker.sends.log_puts import MessageStorer, is_retry_topic
from escrowmq.codec.client_bodies import read_own_body
from escrowmq.codec.dead_letter_bodies import DeadLetter, DeadLetterSelector, DeadLettersPage
from escrowmq.codec.ids import offset_id
from escrowmq.codec.pop_receipt import RETRY_V1, RETRY_V2, retry_topic
from escrowmq.delivery.recent_pop_clients import RecentPopClients
from escrowmq.delivery.retry_topics import RetryTopics
from escrowmq.delivery.topics import TopicTable
from escrowmq.store.store import PutResult, Store
from escrowmq.store.walk import find_by_unique_key, walk_queue

_LOOKED_AT_MAX: Final = 1_000
"""The most letters that one request examines; `next` in the answer says where to continue."""

_COPIED_SIZE_MAX: Final = 4 * 1024 * 1024
"""The most bytes that one request copies, not counting the last letter."""

_FRESH_MAX: Final = 10_000
"""The number of recently redelivered letters that are remembered, because their copies may not be
indexed by key yet."""

_OF_COPY: Final = frozenset(
    {
        Property.CRC32, Property.DELAY, Property.FIRST_POP_TIME, Property.POP_CK,
        Property.DLQ_ORIGIN_TOPIC, Property.DLQ_ORIGIN_MESSAGE_ID,
    }
)  # fmt: skip
"""Properties of a letter that are not copied."""


class DeadLetterHandlers:
    """Serves ESCROW_REDELIVER_DEAD (7723)."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store: Store,
        topics: TopicTable,
        retries: RetryTopics,
        poppers: RecentPopClients,
        identity: Identity,
        putter: MessageStorer,
    ) -> None:
        self._settings = settings
        self._store = store
        self._topics = topics
        self._retries = retries
        self._poppers = poppers
        self._identity = identity
        self._putter = putter
        self._fresh: deque[tuple[str, str]] = deque(maxlen=_FRESH_MAX)

    def redeliver(self, request: IncomingRequest[None]) -> Reply:
        """Redeliver dead letters of one queue to their group, the oldest first."""
        wanted = read_own_body(request.command, DeadLetterSelector)
        queue = Topic.DLQ_PREFIX + wanted.group
        low, end = self._store.bounds(queue, wanted.queue_id)
        first = max(low, wanted.begin)
        last = min(end, first + _LOOKED_AT_MAX, wanted.end if wanted.end >= 0 else end)
        page = DeadLettersPage(items=[], next=last if last < end else -1)
        put: PutResult | None = None
        count = size = 0
        for letter in walk_queue(self._store, queue, first, last, queue_id=wanted.queue_id):
            topic = self._original_topic(letter, wanted.group)
            if wanted.topic not in ("", topic):
                continue
            item = _letter_item(letter, topic)
            page.items.append(item)
            if self._is_redelivered(letter, wanted.group, topic):
                item.status = "done"
                continue
            count += 1
            if not wanted.is_dry_run:
                found = self._redeliver_letter(letter, wanted.group, topic, request.now_ms)
                if isinstance(found, Refusal):
                    if put is None:
                        return found
                    page.items.pop()
                    page.next = letter.queue_offset
                    break
                put, item.status = found, "redelivered"
                size += letter.record_size
            if count >= wanted.limit or size >= _COPIED_SIZE_MAX:
                behind = letter.queue_offset + 1
                page.next = behind if behind < end else -1
                break
        log_end = 0 if put is None else put.log_end
        return Answer(body=msgspec.json.encode(page), log_end=log_end)

    def _original_topic(self, letter: StoredMessage, group: str) -> str:
        """Return the topic where the message failed; empty when it was not recorded."""
        topic = letter.properties.get(Property.RETRY_TOPIC, "")
        for kind in (RETRY_V1, RETRY_V2):  # its last pop was from a retry topic
            prefix = retry_topic("", group, kind)
            if topic.startswith(prefix):
                return topic.removeprefix(prefix)
        return topic

    def _destination(self, letter: StoredMessage, group: str, topic: str) -> str:
        """Return the topic for a letter's copy, which only this group reads."""
        is_popped = is_retry_topic(letter.properties.get(Property.RETRY_TOPIC, "")) or (
            Property.FIRST_POP_TIME in letter.properties
        )
        popper = self._poppers.find(group)
        if not topic or not (is_popped or (popper is not None and topic in popper.subscriptions)):
            return Topic.RETRY_PREFIX + group
        is_v2 = self._settings.has_retry_topic_v2
        newer = self._retries.uses_newer_name(topic, group, is_v2=is_v2)
        return retry_topic(topic, group, RETRY_V2 if newer else RETRY_V1)

    def _is_redelivered(self, letter: StoredMessage, group: str, topic: str) -> bool:
        mark = _letter_id(letter)
        if (group, mark) in self._fresh:
            return True
        places = {self._destination(letter, group, topic), Topic.RETRY_PREFIX + group, letter.topic}
        if topic:
            places |= {retry_topic(topic, group, kind) for kind in (RETRY_V1, RETRY_V2)}
        key = _message_key(letter)
        return any(
            copy.properties.get(DEAD_LETTER) == mark
            for place in places
            for copy in find_by_unique_key(self._store, place, key, after=letter.log_offset)
        )

    def _redeliver_letter(
        self, letter: StoredMessage, group: str, topic: str, now_ms: int
    ) -> PutResult | Refusal:
        place = self._topics.get_or_create(self._destination(letter, group, topic), now_ms=now_ms)
        properties = {
            name: value for name, value in letter.properties.items() if name not in _OF_COPY
        }
        properties |= {DEAD_LETTER: _letter_id(letter), Property.UNIQ_KEY: _message_key(letter)}
        properties.pop(Property.RETRY_TOPIC, None)
        if topic and place.topic_name == Topic.RETRY_PREFIX + group:
            properties[Property.RETRY_TOPIC] = topic  # the name of a pop's retry topic includes it
        put = self._putter.store_message(
            Message(
                topic=place.topic_name,
                body=letter.body,
                queue_id=letter.queue_offset % max(1, place.write_queue_nums),
                flag=letter.flag,
                properties=properties,
                sys_flag=letter.sys_flag,
                born_ms=letter.born_ms,
                born_host=letter.born_host,
                store_host=self._identity.packed,
            ),
            now_ms,
        )
        if not isinstance(put, Refusal):
            self._fresh.append((group, _letter_id(letter)))
        return put


def _letter_item(letter: StoredMessage, topic: str) -> DeadLetter:
    return DeadLetter(
        message_id=_message_key(letter),
        offset_id=offset_id(letter.store_host, letter.log_offset),
        topic=topic,
        keys=letter.properties.get(Property.KEYS, ""),
        queue_id=letter.queue_id,
        queue_offset=letter.queue_offset,
        died_ms=letter.stored_ms,
    )


def _letter_id(letter: StoredMessage) -> str:
    """Return text that identifies a dead letter, also among those of a deleted topic with the same
    name."""
    return f"{letter.queue_id}:{letter.queue_offset}:{letter.stored_ms}"


def _message_key(letter: StoredMessage) -> str:
    """Return the message's unique key, or its offset id, for messages of very old clients that have
    no key."""
    stored_id = offset_id(letter.store_host, letter.log_offset)
    return letter.properties.get(Property.UNIQ_KEY) or stored_id
