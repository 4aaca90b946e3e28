"""Topics: their configurations, their creation, and topics.json."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from escrowmq.base import fixed_limits
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.fixed_limits import AUTO_CREATE_TOPICS_MAX, TOPIC_SIZE_MAX
from escrowmq.base.message import Topic
from escrowmq.base.names import NAME_LETTERS, has_name_letters
from escrowmq.codec import fastjson
from escrowmq.delivery.auto_created import AutoCreateQuota
from escrowmq.delivery.data_version import DataVersion
from escrowmq.delivery.table_text import EntryTextCache, assemble_file, indented_json
from escrowmq.errors import UsageError


class Perm:
    """Bits of a topic's or broker's permission."""

    INHERIT: Final = 1
    WRITE: Final = 2
    READ: Final = 4


class TopicFlag:
    """Bits of a topic's system flag."""

    UNIT: Final = 1
    UNIT_SUB: Final = 2


class TopicConfig(msgspec.Struct, rename="camel", kw_only=True):
    """The configuration of a topic. The fields are in RocketMQ's order."""

    attributes: dict[str, str] = {}
    order: bool = False
    perm: int = Perm.READ | Perm.WRITE
    read_queue_nums: int = 16
    topic_filter_type: str = "SINGLE_TAG"
    topic_name: str = ""
    topic_sys_flag: int = 0
    write_queue_nums: int = 16

    @property
    def has_many_tags(self) -> bool:
        """Whether its messages are marked as possibly having several tags."""
        return self.topic_filter_type == "MULTI_TAG"

    @property
    def is_compacted(self) -> bool:
        """Whether only the newest message of each key is kept, so that each message needs a key."""
        return self.attributes.get("cleanup.policy") == "COMPACTION"


class TopicFile(msgspec.Struct, rename="camel", kw_only=True):
    """The content of topics.json, and the body of GET_ALL_TOPIC_CONFIG."""

    data_version: DataVersion
    topic_config_table: dict[str, TopicConfig] = {}


_ATTRIBUTES: Final[dict[str, frozenset[str] | None]] = {
    "queue.type": frozenset({"SimpleCQ", "BatchCQ"}),
    "cleanup.policy": frozenset({"DELETE", "COMPACTION"}),
    "message.type": frozenset(
        {"UNSPECIFIED", "TRANSACTION", "FIFO", "MIXED", "DELAY", "NORMAL", "PRIORITY"}
    ),
    "reserve.time": None,
}
"""The allowed values of each attribute; None if any value is."""

MESSAGE_TYPE: Final = "message.type"


def name_fault(name: str) -> str | None:
    """Return why a topic's name is invalid, in RocketMQ's words (TopicValidator); None if it is
    valid."""
    if not name.strip():
        return "The specified topic is blank."
    if not has_name_letters(name):
        return f"The specified topic contains illegal characters, allowing only {NAME_LETTERS}"
    if len(name) > TOPIC_SIZE_MAX:
        return "The specified topic is longer than topic max length."
    return None


def parse_attributes(text: str) -> dict[str, str]:
    """Parse `+key=value,-key` of an update request. Raises UsageError in RocketMQ's words."""
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        if name[:1] not in ("+", "-") or (name[0] == "+") != bool(value):
            raise UsageError(f"the key {name} or its value {value!r} is illegal")
        if name[1:] not in _ATTRIBUTES:
            raise UsageError(f"unsupported key: {name[1:]}")
        allowed = _ATTRIBUTES[name[1:]]
        if value and allowed is not None and value not in allowed:
            raise UsageError(f"value is not in set: [{', '.join(sorted(allowed))}]")
        found[name] = value
    return found


def merge_attributes(
    current: dict[str, str], changes: dict[str, str], *, is_new: bool
) -> dict[str, str]:
    """Return the attributes after an update. Raises UsageError if a change is not allowed."""
    merged = dict(current)
    for name, value in changes.items():
        if name[0] == "+":
            merged[name[1:]] = value
        elif is_new:
            raise UsageError(f"only add attribute is supported while creating topic, key: {name}")
        elif name[1:] not in merged:
            raise UsageError(f"attempt to delete a nonexistent key: {name[1:]}")
        else:
            del merged[name[1:]]
    return merged


class TopicTable:
    """The configurations of this broker's topics."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        count_max: int = AUTO_CREATE_TOPICS_MAX,
        made: AutoCreateQuota | None = None,
    ) -> None:
        self._settings = settings
        self.made = made or AutoCreateQuota()
        self.made_retries = AutoCreateQuota()
        """The retry topics of popped messages, each with the account that created its group."""
        self._count_max = count_max
        self._topics: dict[str, TopicConfig] = {}
        self.system: set[str] = set()
        self.version = DataVersion()
        self.is_changed = False
        self.requested_changes_count = 0
        """The number of requested changes, including those that changed nothing: each request is
        answered only after a save."""
        self.unregistered: set[str] = set()
        """Topics that changed since the last registration at name servers."""
        self.get = self._topics.get
        self._texts = EntryTextCache()

    def load(self, data: bytes | None) -> None:
        """Load topics.json."""
        if data:
            file = msgspec.convert(fastjson.decode_fastjson(data), TopicFile)
            self._topics.update(file.topic_config_table)
            self.version = file.data_version
            self._texts.render(self._topics)  # render all now, while no request is served

    def replace_with(self, data: bytes, keeps: Callable[[str], bool]) -> set[str]:
        """Replace this table by another broker's, as GET_ALL_TOPIC_CONFIG returns it. Topics that
        every broker has, and those that `keeps` accepts, stay. Return the removed topics."""
        file = msgspec.convert(fastjson.decode_fastjson(data), TopicFile)
        found = file.topic_config_table
        gone = {
            name
            for name in self._topics
            if name not in found and name not in self.system and not keeps(name)
        }
        changed = {name for name, config in found.items() if self._topics.get(name) != config}
        for name in gone:
            del self._topics[name]
        for name in changed:
            self._topics[name] = found[name]
        for name in gone | changed:
            self._texts.forget(name)
        if gone or changed or file.data_version != self.version:
            self.version = file.data_version
            self.unregistered |= changed
            self.is_changed = True
        return gone

    def mark_saved(self) -> None:
        """Note that the result of `content_to_save` is being stored: later changes need another
        save."""
        self.is_changed = False

    def content_to_save(self) -> bytes:
        """Return the present content of topics.json."""
        return assemble_file(
            dataVersion=indented_json(self.version, depth=1),
            topicConfigTable=self._texts.render(self._topics),
        )

    def file(self) -> TopicFile:
        """Return the version and the table as one value."""
        return TopicFile(data_version=self.version, topic_config_table=self._topics)

    def names(self) -> list[str]:
        """Return the names of all topics."""
        return list(self._topics)

    def configs(self) -> Iterable[TopicConfig]:
        """Return all configurations."""
        return self._topics.values()

    def put(self, config: TopicConfig, now_ms: int) -> None:
        """Create or replace a topic's configuration."""
        self._topics[config.topic_name] = config
        self._note_change(config.topic_name, now_ms)

    def delete(self, name: str, now_ms: int) -> bool:
        """Remove a topic. Return whether it existed."""
        if self._topics.pop(name, None) is None:
            self.requested_changes_count += 1
            return False
        self.made.remove_deleted(name)
        self.made_retries.remove_deleted(name)
        self._note_change(name, now_ms)
        return True

    def mark_all_unregistered(self, now_ms: int) -> None:
        """Mark all topics as unregistered, after a change that affects every one (such as
        brokerPermission)."""
        self.version.advance(now_ms)
        self.unregistered.update(self._topics)
        self.requested_changes_count += 1
        self.is_changed = True

    def readable_queue(self, name: str, queue_id: int) -> int:
        """Return the queue for a message that was sent to this queue. It is another queue if the
        topic has fewer queues now, because consumers no longer read the old one."""
        config = self._topics.get(name)
        if config is None or not 0 < config.read_queue_nums <= queue_id:
            return queue_id
        return queue_id % config.read_queue_nums

    def _note_change(self, name: str, now_ms: int) -> None:
        self._texts.forget(name)
        self.version.advance(now_ms)
        self.unregistered.add(name)
        self.requested_changes_count += 1
        self.is_changed = True

    def is_system(self, name: str) -> bool:
        """Whether a topic is the broker's own."""
        return name in self.system or name.startswith(Topic.SYSTEM_PREFIX)

    def create_system_topics(self, now_ms: int) -> None:
        """Create the topics that a fresh RocketMQ broker has."""
        s = self._settings
        inherit = Perm.READ | Perm.WRITE | Perm.INHERIT
        wanted = {
            Topic.SELF_TEST: (1, 6),
            Topic.BENCHMARK: (1024, 6),
            s.cluster: (16, inherit if s.has_cluster_topic else Perm.INHERIT),
            s.name: (1, inherit if s.has_broker_topic else Perm.INHERIT),
            Topic.OFFSET_MOVED: (1, 6),
            Topic.SCHEDULE: (18, 6),
            s.cluster + Topic.REPLY_SUFFIX: (1, 6),
            Topic.REVIVE_PREFIX + s.cluster: (s.revive_queues_count, 6),
            f"rmq_sys_SYNC_BROKER_MEMBER_{s.name}": (1, Perm.INHERIT),
            Topic.HALF: (1, 6),
            Topic.OP: (1, 6),
        }
        if s.has_timer:
            wanted[Topic.TIMER] = (1, 6)
        if s.creates_topics:
            wanted[Topic.DEFAULT] = (s.topic_queues_count, inherit)
        if s.has_trace_topic:
            wanted[s.trace_topic] = (1, 6)
        self.system = {*wanted, Topic.DEFAULT, Topic.TRACE, Topic.TIMER, Topic.CHECK_MAX_TIME}
        for name, (queues_count, perm) in wanted.items():
            if name not in self._topics:
                self._create(name, queues_count=queues_count, perm=perm, now_ms=now_ms)

    def _create(self, name: str, *, queues_count: int, perm: int, now_ms: int) -> TopicConfig:
        config = TopicConfig(
            topic_name=name,
            perm=perm,
            read_queue_nums=queues_count,
            write_queue_nums=queues_count,
        )
        self.put(config, now_ms)
        return config

    def create_from_template(
        self, name: str, *, template: str, queues_count: int, is_unit: bool, now_ms: int
    ) -> TopicConfig | None:
        """Create a topic on its first send, if its template allows that; else return None. Raises
        UsageError if there are too many topics."""
        source = self._topics.get(template)
        if source is None:
            return None
        if template == Topic.DEFAULT and not self._settings.creates_topics:
            # As RocketMQ (createTopicInSendMessageMethod): the template of an earlier run that
            # created topics ceases to be one with the first send.
            source.perm = Perm.READ | Perm.WRITE
            self._texts.forget(template)
        if not source.perm & Perm.INHERIT:
            return None
        if len(self._topics) >= self._count_max:
            raise UsageError(
                f"topic {name}: there are {len(self._topics)} topics, and first messages "
                f"create topics only while there are fewer than {self._count_max}; delete "
                "unused ones, or have an operator create it"
            )
        self.made.check_quota(f"topic {name}")
        self.made.add_created(name)
        count = max(0, min(queues_count, source.write_queue_nums))
        config = TopicConfig(
            topic_name=name,
            perm=source.perm & ~Perm.INHERIT,
            read_queue_nums=count,
            write_queue_nums=count,
            topic_filter_type=source.topic_filter_type,
            topic_sys_flag=TopicFlag.UNIT if is_unit else 0,
        )
        self.put(config, now_ms)
        return config

    def get_or_create(
        self,
        name: str,
        *,
        queues_count: int = 1,
        is_ordered: bool = False,
        is_unit: bool = False,
        is_asked_for: bool = False,
        now_ms: int,
    ) -> TopicConfig:
        """Return a topic's configuration; create the topic, readable and writable, if it does not
        exist (retry, dead-letter, discard). With `is_asked_for`, it counts as created by the
        requesting account. Raises UsageError if that account has created too many."""
        config = self._topics.get(name)
        if config is None:
            if is_asked_for:
                self.made.check_quota(f"topic {name}")
                self.made.add_created(name)
            config = TopicConfig(
                topic_name=name,
                read_queue_nums=queues_count,
                write_queue_nums=queues_count,
                order=is_ordered,
                topic_sys_flag=TopicFlag.UNIT_SUB if is_unit else 0,
            )
            self.put(config, now_ms)
        return config

    def retry_topic_fault(self, account: str) -> str:
        """Return why a group that an account has created may get no retry topic for one more topic
        that it pops; an empty text if it may. Groups of operators have no account."""
        if len(self._topics) >= self._count_max:
            return (
                f"there are {len(self._topics)} topics, and popped messages create retry topics "
                f"only while there are fewer than {self._count_max}; delete unused ones"
            )
        count = self.made_retries.count(account)
        if account and count >= fixed_limits.POP_RETRY_TOPICS_OF_ACCOUNT_MAX:
            return f"the groups of account {account} have {count} retry topics; delete unused ones"
        return ""

    def create_retry_topic(self, name: str, account: str, now_ms: int) -> None:
        """Create a retry topic of popped messages, which counts for an account."""
        self.made_retries.add_for(name, account)
        self.get_or_create(name, now_ms=now_ms)
