"""A member of a group. For each role, as master or as copy, it opens the broker in its folder
again."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from escrowmq.base.authority import Authority, VersionedRecord
from escrowmq.base.group_settings import GroupSettings
from escrowmq.base.measure import MetricFamily
from escrowmq.broker.replication.group_copy import GroupCopy
from escrowmq.broker.replication.group_master import GroupMaster
from escrowmq.errors import AuthorityUnfit, AuthorityUnreachable, EscrowMQError
from escrowmq.group.copying import CutRequired
from escrowmq.group.drills import DrillFaults
from escrowmq.group.member import GroupMember
from escrowmq.group.member_timeouts import MemberTimeouts
from escrowmq.group.membership import GroupMembership
from escrowmq.group.orders import (
    BecomeMaster,
    FollowMaster,
    KeepState,
    Order,
    ReadRecord,
    WriteRecord,
)
from escrowmq.group.record import GroupRecord
from escrowmq.node.build import release_with_commit
from escrowmq.node.drill_faults import CutOffAuthority, ProcessFaults
from escrowmq.node.group_folder import GroupFolder
from escrowmq.store.cut import record_before

if TYPE_CHECKING:
    from escrowmq.node.broker import BrokerNode
    from escrowmq.node.metrics_and_health import LoopHealthReader

_log = logging.getLogger(__name__)

_NONCE_SIZE: Final = 16
_SECRET_SIZE_MIN: Final = 16


def steady_ms() -> int:
    """Return the time in ms of a clock that is never set."""
    return time.monotonic_ns() // 1_000_000


class BrokerPlan:
    """How a member creates its brokers, and the group's timeouts."""

    def __init__(
        self,
        make: Callable[[GroupMembership, int], BrokerNode],
        *,
        cluster: str,
        broker: str,
        timeout_ms: int,
        loses_nothing: bool,
    ) -> None:
        """`make` creates a broker from its id."""
        self.make = make
        self.cluster, self.broker = cluster, broker
        self.timeout_ms = timeout_ms
        self.loses_nothing = loses_nothing


class GroupNode:
    """The process of a group's member: its decisions, its broker and the authority."""

    def __init__(  # noqa: PLR0913 - what a member is, and what it stands on
        self,
        settings: GroupSettings,
        plan: BrokerPlan,
        folder: GroupFolder,
        authority: Authority,
        *,
        secret: bytes,
        address: str,
        client_address: str,
        on_failure: Callable[[], None],
    ) -> None:
        """`on_failure` ends the process, because a member that works only in part is worse than
        none."""
        self._on_failure = on_failure
        self._settings = settings
        self._plan = plan
        self._folder = folder
        self._drills = DrillFaults()
        if settings.drills:
            self._drills = DrillFaults(
                ProcessFaults(), notes=folder.read_faults(), keep=folder.write_faults
            )
            authority = CutOffAuthority(authority, self._drills, steady_ms)
        self._authority = authority
        self._secret = secret
        self._start_id = secrets.token_hex(8)
        self._key = f"{plan.cluster}/{plan.broker}"
        state = folder.open_at_start(settings.member, loses_nothing=plan.loses_nothing)
        spread = int(hashlib.sha256(state.member.encode()).hexdigest()[:4], 16) % 300
        self.member = GroupMember(
            state,
            MemberTimeouts(silence_ms=settings.silence_ms, takeover_ms=settings.takeover_ms),
            mark=lambda: secrets.token_hex(8),
            address=address,
            client_address=client_address,
            has_log=folder.has_log,
            log=lambda text: _log.warning("%s", text),
            jitter_ms=spread,
            now_ms=steady_ms(),
        )
        self.labels = {
            "cluster": plan.cluster, "node_id": plan.broker, "node_type": "broker",
        }  # fmt: skip
        self.build = release_with_commit()
        self.current: BrokerNode | None = None
        self._open: Callable[[BrokerNode], Coroutine[Any, Any, None]] | None = None
        self._todo: deque[Order | CutRequired] = deque()
        self._event = asyncio.Event()
        self._acted = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Task[None] | None = None
        """The task that closes a broker. It is finished even if the task that waits for it is
        cancelled."""
        self._is_store_closed = folder.was_closed
        """Whether no broker has the store open, and the last one made all of the log durable."""
        self._is_authority_tested = self._is_closing = False
        self._cut_from = 0
        """The offset from which the log is read after the cut in progress."""

    # -- life --------------------------------------------------------------------------------

    async def open(self, open_broker: Callable[[BrokerNode], Coroutine[Any, Any, None]]) -> None:
        """Test the authority, then start as a copy until the authority has answered. `open_broker`
        opens a broker."""
        self._open = open_broker
        try:
            await self._test_authority()
        except AuthorityUnreachable as error:
            _log.warning("%s; it is tested as soon as it answers", error)
        await self._open_broker(None)
        self._start_task(self._carry_out_orders())
        self._start_task(self._run_timer())

    def _start_task(self, run: Coroutine[Any, Any, None]) -> None:
        if self._is_closing:
            run.close()  # a broker that is being closed has woken the member
            return
        task = asyncio.get_running_loop().create_task(run)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.critical("this member stops: one of its tasks has failed", exc_info=error)
            self._on_failure()

    async def close(self) -> None:
        """Leave the group; another member takes over immediately."""
        self._is_closing = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            if self._closing is not None:
                await self._closing
            await self._close_broker()
            if self._is_store_closed:  # otherwise a loss of power may take a part of the log
                self._folder.record_close(self.member.state)
        finally:
            self._folder.close()
            await self._authority.close()

    # -- orders ------------------------------------------------------------------------------

    def _set_broker_id(self) -> None:
        """Set the broker id of a copy to the number that the record gives it."""
        number = self._own_broker_id()
        if number > 0 and self.current is not None and self._group_copy is not None:
            self.current.core.broker.settings.broker_id = number

    def perform_orders(self) -> None:
        """Carry out the member's orders. State that must be stored is durable on return, and a copy
        has stopped where it must. A task changes the role. The authority is asked meanwhile: if the
        change of the role fails, the member must learn of another master."""
        for order in self.member.take_orders():
            if isinstance(order, KeepState):
                self._store_state(order)
            elif isinstance(order, FollowMaster) and self._group_copy is not None:
                self._group_copy.follow_record(order.record, order.why, self._now_ms())
            elif isinstance(order, ReadRecord):
                self._start_task(self._read_record())
            elif isinstance(order, WriteRecord):
                self._start_task(self._write_record(order.record, order.revision))
            else:
                self._todo.append(order)
        if self._todo:
            self._event.set()

    def _store_state(self, order: KeepState) -> None:
        try:
            self._folder.write_state(order.state)
        except OSError:
            # Whoever asked for it may survive, and the member would act on a state that its next
            # start does not know, without the orders behind this one.
            _log.critical("this member stops: its state cannot be stored", exc_info=True)
            self._on_failure()
            raise

    @property
    def _group_copy(self) -> GroupCopy | None:
        front = None if self.current is None else self.current.core.assembly.copying.front
        return front if isinstance(front, GroupCopy) else None

    @property
    def group_master(self) -> GroupMaster | None:
        """Return the broker's part for the master of a group; None if this member is not the
        master."""
        front = None if self.current is None else self.current.core.assembly.copying.front
        return front if isinstance(front, GroupMaster) else None

    def _now_ms(self) -> int:
        assert self.current is not None
        return self.current.now_ms()

    def _follow_up(self) -> None:
        """Continue after something has changed the member: carry out the orders that it now gives,
        then let the broker follow its new role and confirmed end."""
        self.member.wake(steady_ms())
        self.perform_orders()
        self._set_broker_id()
        leader = self.group_master
        if leader is not None:
            leader.update_confirmed_end()
        if self.current is not None:
            self.current.perform_effects()

    async def _run_timer(self) -> None:
        while True:
            wait_s = max(self.member.wake_at_ms() - steady_ms(), 10) / 1000
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._acted.wait()
            self._acted.clear()
            self._follow_up()

    def _perform_and_reset_timer(self) -> None:
        """Carry out orders, and set the member's timer again. The broker calls this after it has
        changed the member."""
        self.perform_orders()
        self._acted.set()

    async def _carry_out_orders(self) -> None:
        while True:
            await self._event.wait()
            self._event.clear()
            while self._todo:
                order = self._todo.popleft()
                try:
                    await self._carry_out_order(order)
                except (EscrowMQError, OSError):
                    _log.exception("this member cannot continue; it is retried")
                    await asyncio.sleep(1)
                    self._todo.appendleft(order)

    async def _carry_out_order(self, order: Order | CutRequired) -> None:
        match order:
            case BecomeMaster(record):
                await self._become_master(record)
            case FollowMaster(record, why):
                if self._group_copy is None:
                    await self._open_broker(None)
                assert self._group_copy is not None
                self._group_copy.follow_record(record, why, self._now_ms())
                self._follow_up()
            case CutRequired():
                await self._cut_log(order)
            case KeepState() | ReadRecord() | WriteRecord():
                raise AssertionError("carried out at once")

    async def _test_authority(self) -> None:
        """Test once that the authority compares before it writes. Raises AuthorityUnfit, which ends
        the process: such an authority could let two members lead."""
        if not self._is_authority_tested:
            await self._authority.require_fit()
            self._is_authority_tested = True

    async def _read_record(self) -> None:
        try:
            await self._test_authority()
            found = await self._authority.read(self._key)
        except AuthorityUnfit:
            raise
        except EscrowMQError as error:
            self.member.authority_failed(str(error), steady_ms())
        else:
            self.member.record_read(found, steady_ms())
        self._follow_up()

    async def _write_record(self, record: GroupRecord, revision: str) -> None:
        found: VersionedRecord | None
        try:
            found = await self._authority.write_if(self._key, record.encode(), revision)
        except EscrowMQError as error:
            self.member.authority_failed(str(error), steady_ms())
        else:
            if found is None:
                self.member.write_refused(steady_ms())
            else:
                self.member.write_succeeded(found, steady_ms())
        self._follow_up()

    # -- roles -------------------------------------------------------------------------------

    async def _become_master(self, record: GroupRecord) -> None:
        began_s = time.monotonic()
        copy, member = self._group_copy, self.member
        if member.is_opening:
            await self._close_broker()
            member.begin_epoch(self._folder.log_end, steady_ms())
            self.perform_orders()
        elif not member.is_leader or member.record is None or member.record.epoch != record.epoch:
            return  # it could not be opened as master, and has been replaced since
        self._folder.write_state(member.state)  # the epoch, if it could not be stored before
        before = None if copy is None else copy.transactions
        await self._open_broker(record, epoch_end=self._folder.log_end, before=before)
        member.note_opened_as_master(steady_ms())
        self._follow_up()
        _log.info("open as master %.2f s later", time.monotonic() - began_s)

    async def _close_broker(self) -> None:
        """Close the broker, and record where its log ends."""
        node, self.current = self.current, None
        if node is not None:
            try:
                await self._close_node(node)
            finally:
                self._folder.log_end = node.core.broker.store.end_offset

    async def _close_node(self, node: BrokerNode) -> None:
        async def close() -> None:
            await node.close()
            self._is_store_closed = node.was_closed_durably

        closing = self._closing = asyncio.get_running_loop().create_task(close())
        try:
            await asyncio.shield(closing)
        finally:
            if closing.done():
                self._closing = None

    async def _open_broker(
        self, master_of: GroupRecord | None, *, epoch_end: int = 0, before: object = None
    ) -> None:
        """Open a broker in the folder: as the master of the record's epoch, or as a copy (None).
        `before`: the pending transactions that this member knew as a copy, for the master that it
        becomes."""
        await self._close_broker()
        member, plan = self.member, self._plan
        membership = GroupMembership(
            member,
            cluster=plan.cluster,
            broker=plan.broker,
            secret=self._secret,
            nonce=lambda: secrets.token_hex(_NONCE_SIZE),
            perform=self._perform_and_reset_timer,
            now_ms=steady_ms,
            timeout_ms=plan.timeout_ms,
            min_copies=self._settings.min_copies,
            leads=master_of,
            authority=self._authority.name,
        )
        membership.drills, membership.start_id = self._drills, self._start_id
        membership.catch_up_rate = self._settings.catch_up_rate << 20
        membership.epoch_end = epoch_end
        membership.before = before
        membership.on_cut = self._order_cut
        membership.on_failure = self._on_failure
        number = 0 if master_of is not None else self._own_broker_id()
        node = plan.make(membership, number)
        assert self._open is not None
        self._is_store_closed = False
        try:
            await self._open(node)
        except BaseException:  # of a signal, too
            await self._close_node(node)
            raise
        membership.before = None  # its store is closed, and would stay in memory
        self.current = node
        self._folder.log_end = node.core.broker.store.end_offset

    def _own_broker_id(self) -> int:
        record = self.member.record
        return -1 if record is None else record.numbers.get(self.member.state.member, -1)

    def _order_cut(self, cut: CutRequired) -> None:
        self._todo.append(cut)
        self._event.set()

    async def _cut_log(self, cut: CutRequired) -> None:
        if self.group_master is not None:
            return
        if self.current is not None:
            self._cut_from = record_before(self.current.core.broker.store, cut.log_offset)
            await self._close_broker()
        if cut.is_anew:
            _log.warning(
                "this member's log has nothing in common with the master's: it is emptied, "
                "and begins at %d",
                cut.log_offset,
            )
            self.member.state = self._folder.empty_store(self.member.state)
        else:
            _log.warning(
                "this member's log is cut at %d; it ended at %d, and %s",
                cut.log_offset,
                self._folder.log_end,
                "nothing behind the cut was acknowledged"
                if self.member.state.sound_end < 0
                else "is copied again from there",
            )
            self._folder.cut_log(at=cut.log_offset, read_from=self._cut_from)
        await self._open_broker(None)
        assert self._group_copy is not None
        self._group_copy.follow_record(self.member.record, "", self._now_ms())
        self._follow_up()

    # -- for the process ---------------------------------------------------------------------

    @property
    def metrics_instance(self) -> str:
        """The broker's name, which all members share, followed by the member's own name."""
        return f"{self._plan.broker}/{self.member.state.member}"

    def health_reader(self, loop: asyncio.AbstractEventLoop) -> LoopHealthReader:
        """Return an object with which other threads can read the member's state."""
        from escrowmq.node.metrics_and_health import LoopHealthReader

        return LoopHealthReader(
            loop, self.measure, labels=self.labels, refusal=self._unready_reason, version=self.build
        )

    def write_refusal_reason(self) -> str:
        """The reason why this member accepts no messages; empty if it does."""
        return "changing its role" if self.current is None else self.current.write_refusal_reason()

    def _unready_reason(self) -> str:
        return "changing its role" if self.current is None else self.current.unready_reason()

    def measure(self) -> list[MetricFamily]:
        """Return the metrics; none while the role changes."""
        return [] if self.current is None else self.current.measure()


def read_secret(path: str) -> bytes:
    """Read the secret that all members share. Raises UsageError if that fails."""
    from pathlib import Path

    from escrowmq.errors import UsageError

    if not path:
        return b""
    try:
        secret = Path(path).read_bytes().strip()
    except OSError as error:
        raise UsageError(f"escrowGroupSecretFile={path}: {error.strerror}") from None
    if len(secret) < _SECRET_SIZE_MIN:
        raise UsageError(
            f"escrowGroupSecretFile={path}: {len(secret)} bytes; at least {_SECRET_SIZE_MIN} "
            "are required, such as `openssl rand -hex 32` prints"
        )
    return secret
