"""ACL 1.0: judges requests by accounts, and serves the requests that change accounts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from escrowmq.acl import acl1_editing
from escrowmq.acl.acl1_accounts import Acl1Rules
from escrowmq.acl.acl1_files import DEFAULT_FILE, AccountFiles
from escrowmq.acl.acl1_guard import is_permitted, refusal
from escrowmq.acl.request_needs import Need
from escrowmq.acl.trusted_addresses import address_parts
from escrowmq.base.answer import DONE, Answer, Refusal, Reply
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Response
from escrowmq.base.command import Command
from escrowmq.base.message import Property, Topic
from escrowmq.base.own_properties import OWNER
from escrowmq.base.ports import Disk
from escrowmq.broker.access.request_rights import RequestRights
from escrowmq.broker.identity import Identity
from escrowmq.broker.incoming_request import IncomingRequest, Question
from escrowmq.broker.peer import Peer
from escrowmq.broker.sends.end_reading import read_end
from escrowmq.codec import fastjson
from escrowmq.codec.hashes import account_mark
from escrowmq.codec.signature import ACCESS_KEY
from escrowmq.delivery.data_version import DataVersion
from escrowmq.delivery.offsets import OffsetTable
from escrowmq.delivery.requesters import WaitingRequests
from escrowmq.delivery.topics import TopicTable
from escrowmq.errors import EscrowMQError, UsageError
from escrowmq.store.store import Store
from escrowmq.txn.doubled_halves import newest_copy
from escrowmq.txn.transactions import Transactions

LOOK_MS: Final = 300
"""The time between two checks of the account files. A change takes effect once two checks have
found the same content."""


class Acl1Handlers:
    """Judges every request by ACL 1.0, and serves codes 50 to 53."""

    REMARK: Final = "org.apache.rocketmq.acl.common.AclException: "
    """RocketMQ's text before each reason for a refusal."""

    def __init__(
        self,
        settings: BrokerSettings,
        identity: Identity,
        disk: Disk,
        on_change: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._files = AccountFiles(disk)
        self._on_change = on_change
        self._look_at_ms = 0

    # -- access check -------------------------------------------------------------------------

    @property
    def rules(self) -> Acl1Rules:
        """The rules in force."""
        return self._files.rules

    @property
    def stale_reason(self) -> str:
        """Why the account files differ from the rules in force; empty when they do not."""
        return self._files.stale_reason

    def load(self, now_ms: int) -> None:
        """Read the accounts. Raises UsageError if they cannot be read; all requests are refused
        then."""
        self._files.load()
        self._look_at_ms = now_ms + LOOK_MS

    def wake(self, now_ms: int) -> None:
        """Check whether the files have changed."""
        if now_ms >= self._look_at_ms:
            self._look_at_ms = now_ms + LOOK_MS
            if self._files.reload_if_changed():
                self._on_change()

    def wake_at_ms(self) -> int:
        """When to check next."""
        return self._look_at_ms

    def refusal(self, request: Question, rights: RequestRights, *, is_proved: bool = False) -> str:
        """Why a request is refused; empty when it is admitted."""
        rules, parts = self._files.rules, address_parts(request.peer.host)
        return refusal(rules, request.command, parts, rights.needs, is_proved=is_proved)

    def trusts(self, peer: Peer) -> bool:
        """Whether a peer's address is trusted without proof."""
        return self._files.rules.is_trusted(address_parts(peer.host))

    def has_right(self, access_key: str, need: Need, host: str) -> bool:
        """Whether an account that was admitted earlier still has a right."""
        return is_permitted(self._files.rules, access_key, need, address_parts(host))

    def _replace_file(self, path: str, document: object) -> None:
        self._files.replace_file(path, document)
        self._on_change()

    # -- changes -----------------------------------------------------------------------------

    def update_account(self, request: IncomingRequest[None]) -> Reply:
        """Create an account, or replace its rights."""
        ext = request.command.ext or {}
        wish = acl1_editing.AccountFields(
            access_key=ext.get("accessKey", ""),
            secret=ext.get("secretKey"),
            address=ext.get("whiteRemoteAddress") or None,
            is_admin=ext.get("admin", "").lower() == "true",
            topic_default=ext.get("defaultTopicPerm") or None,
            group_default=ext.get("defaultGroupPerm") or None,
            topics=_split_list(ext.get("topicPerms")),
            groups=_split_list(ext.get("groupPerms")),
        )
        files = self._files
        path = files.rules.homes.get(wish.access_key, DEFAULT_FILE)
        try:
            document = acl1_editing.with_account(
                files.read_document(path), wish, now_ms=request.now_ms
            )
            self._replace_file(path, document)
        except (EscrowMQError, OSError) as error:
            code = Response.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
            return Answer(code, remark=str(error))
        return DONE

    def delete_account(self, request: IncomingRequest[None]) -> Reply:
        """Remove an account."""
        access_key = (request.command.ext or {}).get("accessKey", "")
        files = self._files
        path = files.rules.homes.get(access_key)
        failed = (
            f"The accessKey[{access_key}] corresponding to accessConfig has been deleted failed."
        )
        try:
            if path is None:
                raise UsageError(failed)
            document = acl1_editing.without_account(
                files.read_document(path), access_key, now_ms=request.now_ms
            )
            self._replace_file(path, document)
        except (EscrowMQError, OSError) as error:
            return Refusal(Response.DELETE_ACL_CONFIG_FAILED, str(error))
        return DONE

    def set_trusted_addresses(self, request: IncomingRequest[None]) -> Reply:
        """Replace the addresses that are trusted without a signature."""
        ext = request.command.ext or {}
        text = ext.get("globalWhiteAddrs", "")
        path = ext.get("aclFileFullPath") or DEFAULT_FILE
        files = self._files
        try:
            # A request may only name a file that is loaded already.
            if path not in (DEFAULT_FILE, *files.loaded_files()):
                raise UsageError(f"{path[:256]!r} is none of {', '.join(files.loaded_files())}")
            patterns = _split_list(text) or []
            document = acl1_editing.with_trusted_addresses(
                files.read_document(path), patterns, now_ms=request.now_ms
            )
            self._replace_file(path, document)
        except (EscrowMQError, OSError) as error:
            remark = f"The globalWhiteAddresses[{text}] has been updated failed. {error}"
            code = Response.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
            return Answer(code, remark=remark)
        return DONE

    def answer_version(self, request: IncomingRequest[None]) -> Reply:
        """Answer with the version of the default file: how often it was changed, and when."""
        rules, settings = self._files.rules, self._settings
        version = DataVersion(counter=rules.counter, timestamp=rules.timestamp)
        ext = {
            "version": fastjson.encode(version).decode(),
            "brokerName": settings.name,
            "brokerAddr": self._identity.address,
            "clusterName": settings.cluster,
        }
        return Answer(ext=ext)


def _split_list(text: str | None) -> list[str] | None:
    """Split a text at commas; None when the field is absent. An address list in braces is one
    item."""
    if not text:
        return None
    items, depth = [""], 0
    for letter in text:
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth <= 0:
            items.append("")
        else:
            items[-1] += letter
    return [item for item in items if item]


class BrokerLookup:
    """Finds in the store and the transactions what the access check needs to know
    (acl.request_needs.StoredDataLookup)."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store: Store,
        topics: TopicTable,
        offsets: OffsetTable,
        requesters: WaitingRequests,
        transactions: Transactions,
    ) -> None:
        self._settings = settings
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._requesters = requesters
        self._transactions = transactions
        self.now_ms = 0

    @property
    def reply_topic(self) -> str:
        """The topic of replies to requests."""
        return self._settings.cluster + Topic.REPLY_SUFFIX

    def request_topic_of_reply(self, properties: Mapping[str, str]) -> str | None:
        """Return the topic of the request that a reply with these properties answers."""
        requester = self._requesters.find(properties, self.now_ms)
        return None if requester is None else requester.topic

    def topic_at(self, log_offset: int) -> str | None:
        """Return the topic of the record at an offset of the log."""
        message = self._store.read(log_offset)
        return None if message is None else message.topic

    def has_topic(self, topic: str) -> bool:
        """Whether a topic exists."""
        return self._topics.get(topic) is not None

    def has_offsets(self, group: str, topic: str) -> bool:
        """Whether a group has an offset in a topic: it has read it, or will."""
        return bool(self._offsets.offsets_of(group, topic))

    def topics_of_end(self, request: Command) -> Iterator[str]:
        """Yield the topics of all messages that an END commits or rolls back. If another account
        began the transaction, also yield the producer group's retry topic, which stands for rights
        on the group."""
        header = read_end(request, self._transactions, self.now_ms)
        if isinstance(header, Refusal):
            return
        half = self._transactions.half_at(header.tran_state_table_offset, header.commit_log_offset)
        if half is None:
            return  # there is nothing to end; the handler answers that
        engine = self._transactions.engine
        again = newest_copy(half, engine.halves, self._store)
        yield half.properties.get(Property.REAL_TOPIC, "")
        for queue_offset in (half.queue_offset, again):
            for member in engine.halves.bundles.members(queue_offset):
                if member in engine.halves.pending:
                    yield engine.halves.pending.topic(member)
        owner = half.properties.get(OWNER)
        if owner and account_mark((request.ext or {}).get(ACCESS_KEY, "")) != owner:
            yield Topic.RETRY_PREFIX + half.properties.get(Property.PGROUP, "")
