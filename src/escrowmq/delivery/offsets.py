"""Each group's offset in each queue: consumerOffset.json."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Any

import msgspec

from escrowmq.base import fixed_limits
from escrowmq.base.message import Topic
from escrowmq.codec import fastjson
from escrowmq.delivery.auto_created import AutoCreateQuota
from escrowmq.delivery.data_version import DataVersion
from escrowmq.delivery.offset_quotas import OffsetQuotas
from escrowmq.delivery.table_text import EntryTextCache, assemble_file, indented_json

_NOT_STORED = -1
_LOG_END = "escrowLogEnd"
_VERSION_STEP = 500
"""The number of commits after which the data version advances (RocketMQ's
consumerOffsetUpdateVersionStep)."""


class OffsetTable:
    """The committed offsets of all groups by topic and queue, and pending resets by operators."""

    def __init__(self, created_groups: AutoCreateQuota | None = None) -> None:
        self.quotas = OffsetQuotas(created_groups or AutoCreateQuota())
        self._offsets: dict[str, dict[int, int]] = {}
        self._pulled: dict[tuple[str, str], dict[int, int]] = {}
        """The next offset that each group will pull, by topic and group."""
        self._resets: dict[str, dict[int, int]] = {}
        self.version = DataVersion()
        self.is_changed = False
        self.saved_log_end = -1
        """The end of the log when the loaded file was written; -1 if the file does not say."""
        self.is_of_rocketmq = False
        """Whether RocketMQ has written the loaded file."""
        self._commits_count = 0
        self._texts = EntryTextCache(_queues_to_encode)
        self._stale_texts: dict[str, None] = {}
        """The keys whose offsets have changed since their text was cached."""
        self._topics_text = (0, b"{}")
        """The number of keys, and their topics by group as text."""

    @staticmethod
    def _key(group: str, topic: str) -> str:
        return f"{topic}@{group}"

    def load(self, data: bytes | None) -> None:
        """Load consumerOffset.json."""
        if not data:
            return
        file: dict[str, Any] = fastjson.decode_fastjson(data)
        for key, queues in (file.get("offsetTable") or {}).items():
            self._offsets[key] = {int(queue): int(offset) for queue, offset in queues.items()}
            self._stale_texts[key] = None
        if "dataVersion" in file:
            self.version = msgspec.convert(file["dataVersion"], DataVersion)
        self.saved_log_end = int(file.get(_LOG_END, -1))
        self.is_of_rocketmq = _LOG_END not in file
        self.is_changed |= self.is_of_rocketmq  # a file of ours tells that we served since

    @property
    def changes_count(self) -> int:
        """A number that increases with each change."""
        return self._commits_count

    def replace_with(self, data: bytes) -> None:
        """Replace this table by another broker's, as GET_ALL_CONSUMER_OFFSET returns it."""
        self._offsets = {}
        self._texts.clear()
        self._topics_text = (-1, b"")
        self.load(data)
        self.is_changed = True

    def mark_saved(self) -> None:
        """Note that the result of `content_to_save` is being stored: later changes need another
        save."""
        self.is_changed = False

    def content_to_save(self, *, log_end: int) -> bytes:
        """Return the present content of consumerOffset.json. It includes the end of the log, from
        which a start can tell which topics were deleted later. Keys are quoted; RocketMQ reads them
        too."""
        for key in self._stale_texts:
            self._texts.forget(key)
        self._stale_texts.clear()
        if self._topics_text[0] != len(self._offsets):
            self._topics_text = (
                len(self._offsets),
                indented_json(self.topics_by_group(), depth=1),
            )
        return assemble_file(
            dataVersion=indented_json(self.version, depth=1),
            groupTopicMap=self._topics_text[1],
            offsetTable=self._texts.render(self._offsets),
            **{_LOG_END: str(log_end).encode()},
        )

    def encode(self) -> bytes:
        """Return the body of the answer to GET_ALL_CONSUMER_OFFSET."""
        return fastjson.encode(
            {
                "dataVersion": self.version,
                "groupTopicMap": self.topics_by_group(),
                "offsetTable": {
                    key: _queues_to_encode(queues) for key, queues in self._offsets.items()
                },
            }
        )

    def limit_memory(self) -> None:
        """Count the offsets, so that accounts with too many get no more. Forget where groups pull
        if these are too many."""
        if sum(map(len, self._pulled.values())) > fixed_limits.OFFSETS_MAX:
            self._pulled.clear()
        if self.is_changed:
            self.quotas.count_by_account(
                (key.partition("@")[2], len(queues)) for key, queues in self._offsets.items()
            )

    def why_not_kept(self, group: str, topic: str, queue_id: int, now_ms: int) -> str:
        """Return why an offset that a client commits is not kept, because there are too many; an
        empty text if it is kept. Those in a group's own retry topic always are: they are few."""
        if not self.quotas.is_crowded or self.get(group, topic, queue_id) >= 0:
            return ""
        if topic == Topic.RETRY_PREFIX + group:
            return ""
        return self.quotas.why_not(group, now_ms)

    def topics_by_group(self) -> dict[str, list[str]]:
        """Return the topics in which each group has offsets."""
        found: dict[str, list[str]] = {}
        for topic, _, group in self._parsed_keys():
            found.setdefault(group, []).append(topic)
        return found

    def commit(self, group: str, topic: str, queue_id: int, offset: int, now_ms: int) -> None:
        """Set a group's offset in a queue: it has read all messages before it."""
        key = f"{topic}@{group}"
        self._offsets.setdefault(key, {})[queue_id] = offset
        self._stale_texts[key] = None
        self.is_changed = True
        self._commits_count += 1
        if self._commits_count % _VERSION_STEP == 0:
            self.version.advance(now_ms)

    def items(self) -> list[tuple[str, dict[int, int]]]:
        """Return each TOPIC@GROUP with its offsets by queue."""
        return list(self._offsets.items())

    def set_back_to_ends(self, end_of: Callable[[str, int], int | None], now_ms: int) -> list[str]:
        """Set back offsets that are after the end of their queue: messages there were lost, and new
        ones will get these offsets. `end_of` returns the end of a queue (None: unknown). Return
        descriptions of the changes."""
        done = []
        for key, queues in self._offsets.items():
            topic, _, group = key.partition("@")
            for queue_id, offset in queues.items():
                end = end_of(topic, queue_id)
                if end is not None and offset > end:
                    self.commit(group, topic, queue_id, end, now_ms)
                    done.append(f"offset of {group} in {topic}/{queue_id}: {offset} set to {end}")
        return done

    def get(self, group: str, topic: str, queue_id: int) -> int:
        """Return the committed offset, or that of a pending reset; -1 if there is none."""
        key = self._key(group, topic)
        if self._resets:
            reset = self._resets.get(key, {}).get(queue_id)
            if reset is not None:
                return reset
        queues = self._offsets.get(key)
        return _NOT_STORED if queues is None else queues.get(queue_id, _NOT_STORED)

    def offsets_of(self, group: str, topic: str) -> dict[int, int]:
        """Return a group's committed offsets in a topic, by queue."""
        return dict(self._offsets.get(self._key(group, topic), {}))

    def note_pulled(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Record the next offset that a group will pull, for statistics only."""
        self._pulled.setdefault((topic, group), {})[queue_id] = offset

    def pulled_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Return the next offset that a group will pull; -1 if unknown."""
        return self._pulled.get((topic, group), {}).get(queue_id, _NOT_STORED)

    def reset(self, group: str, topic: str, queue_id: int, offset: int, now_ms: int) -> None:
        """Reset a group's offset. The group's next pull is answered with it."""
        self._resets.setdefault(self._key(group, topic), {})[queue_id] = offset
        # Resets are not saved: after a restart, only this offset remains of a pending reset.
        self.commit(group, topic, queue_id, offset, now_ms)

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset is pending."""
        return bool(self._resets) and queue_id in self._resets.get(self._key(group, topic), ())

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the pending reset and clear it; None if there is none."""
        if not self._resets:
            return None
        key = self._key(group, topic)
        queues = self._resets.get(key)
        if queues is None:
            return None
        offset = queues.pop(queue_id, None)
        if not queues:
            del self._resets[key]
        return offset

    def topics_of(self, group: str) -> list[str]:
        """Return the topics in which a group has offsets."""
        return [topic for topic, _, other in self._parsed_keys() if other == group]

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have offsets in a topic."""
        return [group for other, _, group in self._parsed_keys() if other == topic]

    def groups_by_topic(self, topics: Container[str]) -> dict[str, set[str]]:
        """Return the groups that have offsets in these topics, by topic."""
        found: dict[str, set[str]] = {}
        for topic, _, group in self._parsed_keys():
            if topic in topics:
                found.setdefault(topic, set()).add(group)
        return found

    def _parsed_keys(self) -> Iterator[tuple[str, str, str]]:
        """Yield topic, separator and group of every key. Topics cannot contain the separator,
        groups can."""
        return (key.partition("@") for key in self._offsets)

    def clone(self, source: str, target: str, topic: str, now_ms: int) -> None:
        """Copy a group's offsets in a topic to another group."""
        for queue_id, offset in self.offsets_of(source, topic).items():
            self.commit(target, topic, queue_id, offset, now_ms)

    def forget_topics(self, topics: Container[str]) -> None:
        """Remove the offsets in deleted topics."""
        self._forget(lambda of, _: of in topics)

    def forget_group(self, group: str) -> None:
        """Remove the offsets of a deleted group."""
        self._forget(lambda _, of: of == group)

    def _forget(self, is_gone: Callable[[str, str], bool]) -> None:
        for table in (self._offsets, self._resets):
            for key in [key for key in table if is_gone(*key.partition("@")[::2])]:
                del table[key]
                self._texts.forget(key)
                self._topics_text = (-1, b"")
                self.is_changed = True
                self._commits_count += 1
        for names in [names for names in self._pulled if is_gone(*names)]:
            del self._pulled[names]


def _queues_to_encode(queues: dict[int, int]) -> dict[str, int]:
    return {str(queue): offset for queue, offset in sorted(queues.items())}
