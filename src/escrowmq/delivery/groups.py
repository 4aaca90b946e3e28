"""Consumer groups: their configuration and subscriptionGroup.json."""

from __future__ import annotations

from typing import Final

import msgspec

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.fixed_limits import AUTO_CREATE_GROUPS_MAX, GROUP_SIZE_MAX
from escrowmq.base.names import has_name_letters
from escrowmq.codec import fastjson
from escrowmq.delivery.auto_created import AutoCreateQuota
from escrowmq.delivery.data_version import DataVersion
from escrowmq.delivery.table_text import EntryTextCache, assemble_file, indented_json
from escrowmq.errors import UsageError


class GroupConfig(msgspec.Struct, rename="camel", kw_only=True):
    """The configuration of a consumer group. The fields are in RocketMQ's order."""

    attributes: dict[str, str] = {}
    broker_id: int = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_message_orderly: bool = False
    consume_timeout_minute: int = 15
    group_name: str = ""
    group_retry_policy: dict[str, object] = msgspec.field(
        default_factory=lambda: {"type": "CUSTOMIZED"}
    )
    group_sys_flag: int = 0
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: int = 16
    retry_queue_nums: int = 1
    which_broker_when_consume_slowly: int = 1
    subscription_data_set: list[dict[str, object]] | None = None


class GroupFile(msgspec.Struct, rename="camel", kw_only=True):
    """The content of subscriptionGroup.json, and the body of GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""

    data_version: DataVersion
    forbidden_table: dict[str, dict[str, int]] = {}
    subscription_group_table: dict[str, GroupConfig] = {}


TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
SYSTEM_GROUPS: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANSACTION_GROUP,
)
_BROADCASTING: Final = frozenset(
    {"CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER",
     TRANSACTION_GROUP}
)  # fmt: skip


def is_group_name(name: str) -> bool:
    """Whether a name is valid for a group."""
    return len(name) <= GROUP_SIZE_MAX and has_name_letters(name)


class GroupTable:
    """The configurations of the consumer groups that this broker knows."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        count_max: int = AUTO_CREATE_GROUPS_MAX,
        made: AutoCreateQuota | None = None,
    ) -> None:
        self._settings = settings
        self.made = made or AutoCreateQuota()
        self._count_max = count_max
        self._groups: dict[str, GroupConfig] = {}
        self.forbidden: dict[str, dict[str, int]] = {}
        self.version = DataVersion()
        self.is_changed = False
        self.requested_changes_count = 0
        """The number of requested changes, including those that changed nothing: each request is
        answered only after a save."""
        self._texts = EntryTextCache()

    def load(self, data: bytes | None) -> None:
        """Load subscriptionGroup.json."""
        if data:
            file = msgspec.convert(fastjson.decode_fastjson(data), GroupFile, strict=False)
            self._groups = file.subscription_group_table
            self.forbidden = file.forbidden_table
            self.version = file.data_version
            self._texts.render(self._groups)  # render all now, while no request is served

    def replace_with(self, data: bytes) -> None:
        """Replace this table by another broker's, as GET_ALL_SUBSCRIPTIONGROUP_CONFIG returns
        it."""
        file = msgspec.convert(fastjson.decode_fastjson(data), GroupFile, strict=False)
        if file == self.file():
            return
        self._groups = file.subscription_group_table
        self.forbidden = file.forbidden_table
        self.version = file.data_version
        self._texts = EntryTextCache()
        self.is_changed = True

    def mark_saved(self) -> None:
        """Note that the result of `content_to_save` is being stored: later changes need another
        save."""
        self.is_changed = False

    def content_to_save(self) -> bytes:
        """Return the present content of subscriptionGroup.json."""
        return assemble_file(
            dataVersion=indented_json(self.version, depth=1),
            forbiddenTable=indented_json(self.forbidden, depth=1),
            subscriptionGroupTable=self._texts.render(self._groups),
        )

    def file(self) -> GroupFile:
        """Return the version and the tables as one value."""
        return GroupFile(
            data_version=self.version,
            forbidden_table=self.forbidden,
            subscription_group_table=self._groups,
        )

    def create_system_groups(self, now_ms: int) -> None:
        """Create the groups that a fresh RocketMQ broker has."""
        for name in SYSTEM_GROUPS:
            if name not in self._groups:
                self.put(
                    GroupConfig(group_name=name, consume_broadcast_enable=name in _BROADCASTING),
                    now_ms,
                )

    def find(self, name: str) -> GroupConfig | None:
        """Return a group's configuration; None if the group does not exist. Creates no group."""
        return self._groups.get(name)

    def names(self) -> list[str]:
        """Return the names of all groups."""
        return list(self._groups)

    def get_or_create(self, name: str, now_ms: int) -> GroupConfig | None:
        """Return a group's configuration. A group that does not exist is created, if that is
        allowed and its name is valid; else return None. Raises UsageError if there are too many
        groups."""
        config = self._groups.get(name)
        if config is None and self._may_create(name):
            if len(self._groups) >= self._count_max:
                raise UsageError(
                    f"group {name}: there are {len(self._groups)} groups, and first use "
                    f"creates groups only while there are fewer than {self._count_max}; "
                    "delete unused ones, or have an operator create it"
                )
            self.made.check_quota(f"group {name}")
            self.made.add_created(name)
            config = GroupConfig(group_name=name)
            self.put(config, now_ms)
        return config

    def _may_create(self, name: str) -> bool:
        if not self._settings.creates_groups and name not in SYSTEM_GROUPS:
            return False
        return is_group_name(name)

    def put(self, config: GroupConfig, now_ms: int) -> None:
        """Create or replace a group's configuration."""
        self._groups[config.group_name] = config
        self._texts.forget(config.group_name)
        self._note_change(now_ms)

    def delete(self, name: str, now_ms: int) -> bool:
        """Remove a group. Return whether it existed."""
        self.forbidden.pop(name, None)
        if self._groups.pop(name, None) is None:
            self.requested_changes_count += 1
            return False
        self.made.remove_deleted(name)
        self._texts.forget(name)
        self._note_change(now_ms)
        return True

    def forbid(self, group: str, topic: str, *, is_readable: bool, now_ms: int) -> None:
        """Forbid or allow a group to read a topic (UPDATE_AND_GET_GROUP_FORBIDDEN)."""
        topics = self.forbidden.setdefault(group, {})
        if is_readable:
            topics.pop(topic, None)
        else:
            topics[topic] = 1
        if not topics:
            del self.forbidden[group]
        self._note_change(now_ms)

    def _note_change(self, now_ms: int) -> None:
        self.version.advance(now_ms)
        self.requested_changes_count += 1
        self.is_changed = True

    def is_forbidden(self, group: str, topic: str) -> bool:
        """Whether a group is forbidden to read a topic."""
        return bool(self.forbidden) and topic in self.forbidden.get(group, ())
