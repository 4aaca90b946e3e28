"""Checks every request before its handler: first rate limits and quotas, then ACL 1.0 and ACL 2.0.
Long polls that wait are checked again when the rules change."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from escrowmq.acl import request_proofs
from escrowmq.acl.access_explanation import explain_account, explain_user
from escrowmq.acl.acl1_accounts import PUB
from escrowmq.acl.acl1_files import AccountFiles
from escrowmq.acl.acl2_accesses import UPDATE, cluster_access, topic_access
from escrowmq.acl.acl2_policies import Action
from escrowmq.acl.request_needs import Need
from escrowmq.acl.request_proofs import AccountSecrets, ProofResult, RequestProofs
from escrowmq.base.answer import Answer, Denial, Refusal, Reply
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request, Response
from escrowmq.base.message import Topic
from escrowmq.base.ports import Disk, RandomSource
from escrowmq.broker.access.audit_log import DenialLog
from escrowmq.broker.access.on_acl1 import Acl1Handlers, BrokerLookup
from escrowmq.broker.access.on_acl2 import Acl2Handlers
from escrowmq.broker.access.operator_addresses import admits_operator
from escrowmq.broker.access.quotas import Quotas
from escrowmq.broker.access.rates import AddressRates
from escrowmq.broker.access.request_rights import RequestRights
from escrowmq.broker.answers.answer_delivery import AnswerSender
from escrowmq.broker.identity import Identity
from escrowmq.broker.incoming_request import IncomingRequest, Question
from escrowmq.broker.part import File, Part
from escrowmq.broker.peer import Peer
from escrowmq.broker.peers import Peers
from escrowmq.codec.acl2_bodies import AccessJudgements
from escrowmq.codec.acl2_bodies import AccessQuestion as Explained
from escrowmq.codec.client_bodies import decode_body
from escrowmq.codec.hashes import account_mark
from escrowmq.codec.own_signature import SESSION
from escrowmq.codec.repeated_requests import with_text_fields
from escrowmq.codec.signature import ACCESS_KEY
from escrowmq.delivery import auto_created
from escrowmq.delivery.auto_created import RequestAccount
from escrowmq.delivery.held_pops import PopPolls
from escrowmq.delivery.held_pulls import LongPoll, LongPolls
from escrowmq.txn.transactions import Transactions

_log = logging.getLogger(__name__)

_ASKED_AGAIN_MAX: Final = 500
"""The most long polls that are judged again in one wake-up, which takes about 10 ms."""

_NEVER_MS: Final = (1 << 62) - 1
_UNPROVED: Final = ProofResult()
_PUBLISH: Final = frozenset({Action.PUB})


PollTable = LongPolls[Any] | PopPolls[Any]
"""A table of waiting long polls; each entry has its peer and its request."""

ListPollTables = Callable[[], Iterable[PollTable]]
"""A function that returns the tables of all waiting long polls."""


class AccessCheck(Part):
    """The access check before the handlers. Also serves the requests that change accounts, users
    and policies."""

    name = "access control"

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        chance: RandomSource,
        identity: Identity,
        present: RequestAccount,
        peers: Peers,
        answers: AnswerSender,
        disk: Disk,
        transactions: Transactions,
        places: BrokerLookup,
        quotas: Quotas,
        accounts: Disk,
        denials: DenialLog,
        polls: ListPollTables,
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._present = present
        self._peers = peers
        self._answers = answers
        self._disk = disk
        self._transactions = transactions
        self._polls = polls
        self._places = places
        self._again: deque[tuple[PollTable, LongPoll[Any]]] = deque()
        self.rates = AddressRates(settings)
        self.quotas = quotas
        self.denials = denials
        self.proofs = RequestProofs(settings.own_signatures, chance=chance, find=self._secrets_of)
        # Where ACL 1.0 trusts an address, only the user of ACL 2.0 must be proved.
        self._user_proofs = RequestProofs(
            settings.own_signatures, chance=chance, find=self._user_secrets_of
        )
        self.accounts = (
            Acl1Handlers(settings, identity, accounts, self._apply_changed_rules)
            if settings.acl_enabled
            else None
        )
        self.users = Acl2Handlers(settings, disk, self._apply_changed_rules)
        self._old_accounts = AccountFiles(accounts)
        transactions.checker.may_see = self._may_get_check if self.requires_authentication else None
        if self.requires_authentication and not settings.acl_as_rocketmq:
            present.has_owners = True
        self.version = 0
        """The version of the rules: it increases whenever they change."""

    @property
    def requires_authentication(self) -> bool:
        """Whether every peer must prove its identity."""
        return self.accounts is not None or self._settings.authenticates

    @property
    def has_stale_accounts(self) -> bool:
        """Whether the account files differ from the rules in force."""
        return self.accounts is not None and bool(self.accounts.stale_reason)

    @property
    def can_refuse(self) -> bool:
        """Whether any request can be refused: by accounts, or by rate limits."""
        return self.requires_authentication or self.rates.has_limit

    @property
    def handlers(self) -> tuple[object, ...]:
        """The handlers of the requests that change the rules."""
        own = (self, self.users)
        return own if self.accounts is None else (*own, self.accounts)

    def read_rules(self, now_ms: int) -> None:
        """Read the account files and the file of users. Raises UsageError if they cannot be read;
        all requests are refused then."""
        settings = self._settings
        if self.requires_authentication:
            self.quotas.load(self._disk.read(auto_created.PATH))
        if settings.acl_as_rocketmq and (settings.acl_enabled or settings.authenticates):
            _log.warning(
                "escrowAclAsRocketMQ=true requires no more rights than RocketMQ does: any "
                "account may end others' transactions and view others' messages; the list "
                "is in docs/security.md"
            )
        if self.accounts is not None:
            self.accounts.load(now_ms)
        self.users.load()
        if self._settings.takes_over_accounts:
            self._old_accounts.load()
            count = self.users.book.migrate_accounts(self._old_accounts.rules)
            if count:
                _log.warning("%d accounts of plain_acl.yml were migrated to users", count)

    def reload_users(self) -> None:
        """Load the file of users again: this copy has received a newer one from its master."""
        self.users.book.load()
        self._apply_changed_rules()

    # -- access check -------------------------------------------------------------------------

    def judge_request(self, request: Question) -> Refusal | None:
        """Return why a request is refused; None when it is admitted. Raises EscrowMQError if the
        request cannot be decoded, and so not be judged."""
        if request.peer.identity:
            request_proofs.name_account(request.command, request.peer.identity)
        if not (self.requires_authentication and self._names_known_account(request)):
            # For a stranger's request, or one that needs no proof: the rate limit comes first,
            # before any costly check.
            refusal = self.rates.judge(request) if self.rates.has_limit else None
            if refusal is not None or not self.requires_authentication:
                return refusal
        return (
            None
            if request.command.code == Request.ESCROW_SESSION
            else self._judge_and_count(request)
        )

    def judge_ahead(self, request: Question) -> Refusal | None:
        """Judge a request before it is made. A refusal counts, as for any request; an admission
        does not, because the request is judged again when it is made."""
        if request.peer.identity:
            request_proofs.name_account(request.command, request.peer.identity)
        if (
            not self.requires_authentication
            or self._judge_by_rules(request, request.now_ms) is None
        ):
            return None
        return self.judge_request(request)

    def may_cache_decision(self, peer: Peer) -> bool:
        """Whether the decision about a peer's request may be reused for its further requests with a
        valid signature."""
        is_known = not (peer.is_stranger or peer.identity)
        is_plain = not (self.rates.has_limit or self._settings.acl_as_rocketmq)
        return self.requires_authentication and is_known and is_plain

    def lasting_grant_keys(self, request: Question) -> list[AccountSecrets] | None:
        """If the rules admit every request of this kind that is signed with the account's keys,
        return these keys; they stay valid until `version` changes. Return None if each request must
        be judged."""
        key = request.ext.get(ACCESS_KEY, "")
        found = self._secrets_of(key)
        if not found or self.proofs.requires_own_signature(key) or self._account_of(request) != key:
            return None
        refused = self._judge_rights(request, request.now_ms, is_proved=True)
        return found if refused is None else None

    def answer_session(self, request: IncomingRequest[None]) -> Reply:
        """Answer with the connection's session, which our own clients sign with their requests. Any
        client may request it, because it grants nothing."""
        if not self.requires_authentication and self._identity.operator is None:
            return Refusal(
                Response.REQUEST_CODE_NOT_SUPPORTED, "this broker requires no signatures"
            )
        return Answer(ext={SESSION: self.proofs.session_of(request.peer)})

    def _names_known_account(self, request: Question) -> bool:
        key = request.ext.get(ACCESS_KEY, "")
        return key in self.users.book.users or (
            self.accounts is not None and key in self.accounts.rules.accounts
        )

    def _count_admitted(self, request: Question) -> Refusal | None:
        """Count an admitted request for its account. Return the refusal if it exceeds a rate or a
        quota."""
        self._present.account = request.account
        if not request.account:
            return None
        refusal: Refusal | None = None
        if self.rates.has_limit:
            refusal = self.rates.judge(request, account=request.account)
        return refusal or self.quotas.judge(request)

    def _judge_and_count(self, request: Question) -> Refusal | None:
        """Judge a request by the rules and count it. Return the refusal; None when it is
        admitted."""
        refused = self._judge_by_rules(request, request.now_ms)
        if refused is None:
            request.account = self._account_of(request)
            refusal = self._count_admitted(request)
            if refusal is not None:
                return refusal
            peer, code = request.peer, request.command.code
            if code not in self.users.terms.unauthenticated:
                peer.count_proved_request()
            if code == Request.HEART_BEAT:
                # The account with which it is a member of its groups from now on.
                peer.account = request.account
            return None
        if self.rates.has_limit and self._names_known_account(
            request
        ):  # the sender failed to prove it
            refusal = self.rates.judge(request)
            if refusal is not None:
                return refusal
        refusal, reason = refused
        self.denials.log_denial(request, reason, request.now_ms)
        return refusal

    def _account_of(self, request: Question) -> str:
        """The account of an admitted request; empty when no proof was required."""
        is_proved = (
            self._settings.authenticates
            and request.command.code not in self.users.terms.unauthenticated
        ) or (self.accounts is not None and not self.accounts.trusts(request.peer))
        return request.ext.get(ACCESS_KEY, "") if is_proved else ""

    def _secrets_of(self, key: str) -> list[AccountSecrets]:
        """Return the secrets of an account, one for each ACL version in use; an empty list when one
        of them does not know the account."""
        found = []
        if self.accounts is not None:
            account = self.accounts.rules.accounts.get(key)
            if account is None:
                return []
            found.append(AccountSecrets((account.secret, account.former), account.is_admin))
        if self._settings.authenticates:
            users = self._user_secrets_of(key)
            if not users:
                return []
            found += users
        return found

    def _user_secrets_of(self, key: str) -> list[AccountSecrets]:
        """Return the secrets of a user of ACL 2.0; an empty list if there is no such user."""
        user = self.users.book.users.get(key)
        if user is None:
            return []
        return [AccountSecrets((user.password, user.former), user.is_super)]

    def _judge_by_rules(
        self, request: Question, now_ms: int, *, is_held: bool = False
    ) -> tuple[Refusal, str] | None:
        """Judge a request by the rules, its signature included. Return the refusal and the reason
        without RocketMQ's prefix; None when it is admitted."""
        proof = _UNPROVED
        is_trusted = self.accounts is not None and self.accounts.trusts(request.peer)
        if self._settings.authenticates or not is_trusted:
            proofs = self._user_proofs if is_trusted else self.proofs
            window_s = 0 if is_held else self._settings.signature_window_s
            proof = proofs.verify_request(
                request.peer, request.command, is_held=is_held, now_ms=now_ms, window_s=window_s
            )
        if proof.fault:
            return Denial(proof.code, proof.fault), proof.fault
        return self._judge_rights(request, now_ms, is_proved=proof.is_proved)

    def _judge_rights(
        self, request: Question, now_ms: int, *, is_proved: bool
    ) -> tuple[Refusal, str] | None:
        """Judge a request by the rights of its sender. Return the refusal and the reason without
        RocketMQ's prefix; None when it is admitted. `is_proved`: the sender's identity was already
        verified."""
        self._places.now_ms = now_ms
        rights = RequestRights(request, self._places, self._settings)
        if self.accounts is not None:
            reason = self.accounts.refusal(request, rights, is_proved=is_proved)
            if reason:
                return Denial(Response.SYSTEM_ERROR, self.accounts.REMARK + reason), reason
        if self._settings.authenticates:
            reason = self.users.refusal(request, rights, is_proved=is_proved)
            if reason:
                return Denial(Response.NO_PERMISSION, reason), reason
        return None

    def explain(self, request: IncomingRequest[None]) -> Reply:
        """Name the rule that allows or refuses a given request of an account."""
        question = decode_body(Explained, request.body)
        settings = self._settings
        answers = []
        if self.accounts is not None:
            answers.append(explain_account(self.accounts.rules, question))
        if settings.authenticates:
            verdict = explain_user(
                self.users.book,
                question,
                is_authorized=settings.authorizes,
                as_rocketmq=settings.acl_as_rocketmq,
            )
            answers.append(verdict)
        return Answer(body=msgspec.json.encode(AccessJudgements(answers=answers)))

    def may_store_again(self, request: Question) -> bool:
        """Whether an admitted sender may mark its message as the one of a committed half, stored
        again: only one that may settle transactions."""
        settings, host = self._settings, request.peer.host
        if not admits_operator(settings, request.peer):
            return False
        if settings.acl_as_rocketmq:
            return True
        if self.accounts is not None and not self.accounts.trusts(request.peer):
            account = self.accounts.rules.accounts.get(request.account)
            if account is None or not account.is_admin:
                return False
        access = cluster_access(settings.cluster, UPDATE)
        return not settings.authenticates or self.users.has_right(request.account, access, host)

    # -- after the rules have changed --------------------------------------------------------------

    def _apply_changed_rules(self) -> None:
        """Apply changed rules: judge the waiting long polls again, and resume checks of parked
        halves."""
        self.version += 1
        self._again = deque((table, held) for table in self._polls() for held in table.all_polls())
        checker = self._transactions.checker
        for group in checker.parked_groups():
            checker.unpark_group(group)

    def _judge_waiting_polls(self, now_ms: int) -> None:
        for _ in range(min(len(self._again), _ASKED_AGAIN_MAX)):
            table, held = self._again.popleft()
            if held.is_done:
                continue
            request: Question = held.question.request
            request.command = with_text_fields(request.command)  # no proof was required earlier
            refused = self._judge_by_rules(request, now_ms, is_held=True)
            if refused is None:
                continue
            refusal, reason = refused
            table.remove(held)
            self.denials.log_denial(request, reason, now_ms)
            self._answers.send(request, refusal)

    def _may_get_check(self, peer_id: int, topic: str, group: str, owner: str) -> bool:
        """Whether a producer may be sent a check of a half: only if it may end the half. That it is
        a member of the half's group proves nothing, because any client can claim a group in its
        heartbeat. `owner` is the mark of the account that stored the half."""
        peer = self._peers.by_id.get(peer_id)
        if peer is None:
            return False
        if self._settings.acl_as_rocketmq:
            return True
        is_own = not owner or account_mark(peer.account) == owner
        needed = (topic,) if is_own else (topic, Topic.RETRY_PREFIX + group)
        return all(self._may_publish(peer, name) for name in needed)

    def _may_publish(self, peer: Peer, name: str) -> bool:
        """Whether an account may publish to a topic. With a group's retry topic as name: whether it
        may publish as that group."""
        if self.accounts is not None and not self.accounts.has_right(
            peer.account, Need(name, PUB), peer.host
        ):
            return False
        return not self._settings.authenticates or self.users.has_right(
            peer.account, topic_access(name, _PUBLISH), peer.host
        )

    # -- as a part of the broker -------------------------------------------------------------

    def disconnected(self, peer: Peer, now_ms: int) -> None:
        """Subtract a lost connection from those of its account."""
        self.quotas.uncount_connection(peer)

    def final_files(self, now_ms: int) -> tuple[File, ...]:
        """Return the file that records which account created which topics and groups."""
        return tuple(self.quotas.final_files())

    def wake(self, now_ms: int) -> None:
        """Check whether the account files have changed, and continue unfinished work."""
        if self.accounts is not None:
            self.accounts.wake(now_ms)
        self._judge_waiting_polls(now_ms)
        self.quotas.wake(now_ms)
        self.denials.wake(now_ms)

    def wake_at_ms(self) -> int:
        """The time at which `wake` has more to do."""
        if self._again:
            return 0
        at_ms = min(self.denials.wake_at_ms() or _NEVER_MS, self.quotas.wake_at_ms())
        return at_ms if self.accounts is None else min(at_ms, self.accounts.wake_at_ms())
