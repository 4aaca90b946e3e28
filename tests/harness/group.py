"""A group of brokers in memory: cores on simulated disks, an authority, and a lossy network."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.store_settings import StoreSettings
from escrowmq.broker.replication.group_copy import GroupCopy
from escrowmq.broker.replication.group_master import GroupMaster
from escrowmq.codec.record_layout import HEAD_V4
from escrowmq.errors import DiskFull
from escrowmq.group.copying import CutRequired
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
from escrowmq.group.record import GroupRecord, decode_group_record
from escrowmq.group.state import PATH, MemberState, decode_state, state_after_start
from escrowmq.store.cut import cut_log, record_before
from escrowmq.testing.authority import MemoryAuthority
from escrowmq.testing.disk import CrashLoss, SimDisk
from tests.harness.drill_faults import drills_of
from tests.harness.exchange import SMALL, START_MS
from tests.harness.group_broker import MemberBroker
from tests.harness.group_network import Network

KEY = "cluster/b"
STEP_MS = 10
_DAYS_MS = 10 * 86_400_000
SECRET = b"a secret of sixteen bytes"


class MemberHost:
    """A machine with one member on it, as node.group is in a process."""

    def __init__(self, world: GroupWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.address = f"10.0.0.{ord(name)}"
        self.disk = SimDisk()
        self.boot = "boot-0"
        self.drills = drills_of(self)
        self.life = 0
        """Grows with each broker: what is under way to a former one is lost."""
        self.broker: MemberBroker | None = None
        self.is_frozen = False
        self.is_ready = False
        """Whether clients are let in."""
        self.fails_syncs = False
        self.skew_ms = 0
        """By how much the machine's clock is ahead of the others."""
        self._ahead_ms = 0
        """By how much the process continues a store's time that the clock has not reached."""
        self.log_lines: list[str] = []
        self._late: list[Callable[[], None]] = []
        """What arrives while it is frozen."""
        self._cut: CutRequired | None = None
        self._log_end = self._starts = 0

    @property
    def wall_ms(self) -> int:
        """The clock of this machine's process (net.clock)."""
        return self.world.wall_ms + self.skew_ms + self._ahead_ms

    # -- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the process."""
        world, disk = self.world, self.disk
        self._starts += 1
        self._ahead_ms = 0
        data = disk.read(PATH)
        fresh = f"{self.name}-{world.chance.getrandbits(32):x}"
        has_log = bool(disk.names("commitlog"))
        state = (
            MemberState(member=self.name, incarnation=fresh) if data is None else decode_state(data)
        )
        if state.is_emptying:
            state = self._empty(state)
        is_sync = world.store_settings.is_sync_flush
        state = state_after_start(state, boot=self.boot, loses_nothing=is_sync, fresh=fresh)
        self._keep(state)
        self.member = GroupMember(
            state,
            world.terms,
            mark=lambda: f"{world.chance.getrandbits(64):x}",
            address=f"{self.address}:10912",
            client_address=f"{self.address}:10911",
            has_log=has_log,
            log=self.log_lines.append,
            jitter_ms=world.chance.randrange(300),
            now_ms=world.now_ms,
        )
        if self._be(None):
            self.member.wake(world.now_ms)
            self.perform()

    def _keep(self, state: MemberState) -> None:
        """As node.reserved_file does: a full disk has room for it."""
        room, self.disk.room = self.disk.room, None
        self.disk.replace(PATH, state.encode(), is_private=True)
        self.disk.room = room

    def kill(self, loss: CrashLoss = CrashLoss.NOTHING) -> None:
        """The process is killed, or (with a loss) the machine loses power."""
        self.world.forget(self, tells=loss is CrashLoss.NOTHING)
        self.broker = None
        self.is_ready = self.is_frozen = False
        self._late.clear()
        self.life += 1
        self.disk.crash(self.world.chance, loss)
        if loss is not CrashLoss.NOTHING:
            self.boot = f"boot-{self.life}"

    def kill_and_rot(self) -> None:
        """The process is killed, and its disk damages the newest record that a queue leads to."""
        assert self.broker is not None
        units = [q.unit(q.end - 1) for q in self.broker.core.broker.store.queues]
        newest = max((unit[0] for unit in units if unit is not None), default=None)
        self.kill()
        if newest is not None:
            size = self.world.store_settings.log_segment_size
            path = f"commitlog/{newest - newest % size:020d}"
            self.disk.flip_bit(path, newest % size + HEAD_V4.size)

    def age_log(self, before: int = 1 << 62) -> None:
        """The files of the log before an offset become old; those that nobody needs are deleted."""
        size = self.world.store_settings.log_segment_size
        for path, file in self.disk.files.items():
            folder, _, name = path.partition("/")
            if folder == "commitlog" and int(name) + size <= before:
                file.modified_ms = min(file.modified_ms, self.wall_ms - _DAYS_MS)
        if self.broker is not None and not self.is_frozen:
            self.broker.core.broker.store.retention.request_cleanup()
            self.broker.pass_time(self.wall_ms)

    @property
    def is_up(self) -> bool:
        return self.broker is not None

    # -- orders, as node.group carries them out ------------------------------------------------

    def perform(self) -> None:
        """What is to be kept is kept at once; a copy stops at once."""
        todo: list[Order] = []
        for order in self.member.take_orders():
            if isinstance(order, KeepState):
                self._keep(order.state)
            elif isinstance(order, FollowMaster) and self.copy is not None:
                self.copy.follow_record(order.record, order.why, self.wall_ms)
            else:
                todo.append(order)
        for order in todo:
            self.world.later(0, partial(self._do, order, self.life))

    def _do(self, order: Order, life: int) -> None:
        if not self.is_up:
            return
        match order:
            case ReadRecord():
                self.world.read(self)
            case WriteRecord(record, revision):
                self.world.write(self, record, revision)
            case BecomeMaster(record) if life == self.life:
                self._lead(record)
            case FollowMaster(record, why):
                if self.copy is None and not self._be(None):
                    return
                assert self.copy is not None
                self.copy.follow_record(record, why, self.wall_ms)
                self.after()
            case _:
                pass

    def after(self) -> None:
        """Something has happened to the member."""
        if not self.is_up:
            return
        self.member.wake(self.world.now_ms)
        self.perform()
        if self.leader is not None:
            self.leader.update_confirmed_end()
        if self.broker is not None:
            self.broker.perform()

    @property
    def _front(self) -> object:
        return None if self.broker is None else self.broker.core.assembly.copying.front

    @property
    def copy(self) -> GroupCopy | None:
        front = self._front
        return front if isinstance(front, GroupCopy) else None

    @property
    def leader(self) -> GroupMaster | None:
        front = self._front
        return front if isinstance(front, GroupMaster) else None

    def _shut(self) -> None:
        broker, self.broker = self.broker, None
        self.is_ready = False
        self.world.forget(self, tells=True)
        self.life += 1
        if broker is not None:
            broker.core.close(self.wall_ms)
            self._log_end = broker.core.broker.store.end_offset
            self.disk.restart()

    def _be(self, leads: GroupRecord | None, *, epoch_end: int = 0, before: object = None) -> bool:
        """Open as master or copy. With a full disk the process ends, and is started again a second
        later."""
        self._shut()
        membership = GroupMembership(
            self.member,
            cluster="cluster",
            broker="b",
            secret=SECRET,
            nonce=lambda: f"{self.world.chance.getrandbits(64):x}",
            perform=self.perform,
            now_ms=lambda: self.world.now_ms,
            timeout_ms=3_000,
            min_copies=self.world.min_copies,
            leads=leads,
            authority="memory",
        )
        membership.drills, membership.catch_up_rate = self.drills, self.world.catch_up_rate
        membership.epoch_end = epoch_end
        membership.start_id = f"{self.name}-{self._starts}"
        membership.before = before
        membership.on_cut = self._wants_cut
        membership.set_on_ready(self._ready)
        try:
            self.broker = MemberBroker(self, membership, number=0 if leads else 1)
        except DiskFull:
            self._restart_later()
            return False
        self._ahead_ms += max(0, self.broker.now_ms - self.wall_ms)
        self._log_end = self.broker.core.broker.store.end_offset
        return True

    def _restart_later(self) -> None:
        """The process ends, as its disk is full, and is started again."""
        self.kill()
        self.world.later(1_000, lambda: None if self.is_up else self.start())

    def _ready(self) -> None:
        self.is_ready = True

    def _lead(self, record: GroupRecord) -> None:
        before = None if self.copy is None else self.copy.transactions
        self._shut()
        self.member.begin_epoch(self._log_end, self.world.now_ms)
        for order in self.member.take_orders():
            assert isinstance(order, KeepState), order
            self._keep(order.state)
        self.world.note_epoch(record, self._log_end)
        if self._be(record, epoch_end=self._log_end, before=before):
            self.member.note_opened_as_master(self.world.now_ms)
        self.after()

    def _wants_cut(self, cut: CutRequired) -> None:
        life = self.life
        self.world.later(0, lambda: self._carry_cut(cut, life))

    def _carry_cut(self, cut: CutRequired, life: int) -> None:
        if self.broker is None or self.copy is None or life != self.life:
            return
        read_from = record_before(self.broker.core.broker.store, cut.log_offset)
        self._shut()
        if cut.is_anew:
            self.member.state = self._empty(self.member.state)
        else:
            try:
                cut_log(
                    self.disk, self.world.store_settings, at=cut.log_offset, read_from=read_from
                )
            except DiskFull:
                self._restart_later()
                return
            self.disk.restart()
        if not self._be(None):
            return
        assert self.copy is not None
        self.copy.follow_record(self.member.record, "", self.wall_ms)
        self.after()

    def _empty(self, state: MemberState) -> MemberState:
        state = replace(state, is_emptying=True, history=())
        self._keep(state)
        for path in [*self.disk.files, *self.disk.small]:
            if path != PATH:
                self.disk.remove(path)
        state = replace(state, is_emptying=False)
        self._keep(state)
        return state

    # -- time --------------------------------------------------------------------------------

    def arrive(self, act: Callable[[], None]) -> None:
        """Something arrives; while it is frozen it waits in its sockets."""
        if self.is_frozen:
            self._late.append(act)
        else:
            act()

    def freeze(self) -> None:
        """SIGSTOP."""
        self.is_frozen = True

    def thaw(self) -> None:
        """SIGCONT: clients' requests and all else that has arrived are served first."""
        self.is_frozen = False
        late, self._late = self._late, []
        for act in late:
            act()

    def step(self) -> None:
        """Time has passed."""
        if not self.is_up or self.is_frozen:
            return
        assert self.broker is not None
        self.broker.pass_time(self.wall_ms)
        if self.world.now_ms >= self.member.wake_at_ms():
            self.after()


class GroupWorld(Network):
    """All of them."""

    def __init__(
        self,
        seed: int,
        names: str = "abc",
        *,
        terms: MemberTimeouts | None = None,
        store: StoreSettings | None = None,
        min_copies: int = 1,
        settings: BrokerSettings | None = None,
        sync_delay_ms: int = 0,
        has_drills: bool = False,
    ) -> None:
        """`sync_delay_ms`: how long a sync takes; 0: none."""
        super().__init__()
        self.settings = settings or BrokerSettings(name="b")
        self.sync_delay_ms = sync_delay_ms
        self.has_drills, self.catch_up_rate = has_drills, 0
        self.min_copies = min_copies
        self.chance = random.Random(seed)
        self.terms = terms or MemberTimeouts()
        self.store_settings = store or replace(SMALL, log_segment_size=1 << 16)
        self.authority = MemoryAuthority()
        self.now_ms = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._events_count = 0
        self.epochs: dict[int, tuple[str, int]] = {}
        self.delay_max_ms = 5
        self.authority_loss = 0.0
        self.without_authority: set[str] = set()
        """Members that do not reach it."""
        self.hosts = {name: MemberHost(self, name) for name in names}

    @property
    def wall_ms(self) -> int:
        """The clock of all machines."""
        return START_MS + self.now_ms

    # -- time --------------------------------------------------------------------------------

    def later(self, delay_ms: int, act: Callable[[], None]) -> None:
        self._events_count += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._events_count, act))

    def advance(self, span_ms: int) -> None:
        """Time passes for all."""
        until_ms = self.now_ms + span_ms
        while self.now_ms < until_ms:
            self.now_ms += STEP_MS
            self._run_due()
            for host in self.hosts.values():
                host.step()
            self._run_due()

    def _run_due(self) -> None:
        while self._events and self._events[0][0] <= self.now_ms:
            heapq.heappop(self._events)[2]()

    def until(self, what: Callable[[], Any], *, within_ms: int = 30_000) -> Any:
        """Let time pass until something is so."""
        end_ms = self.now_ms + within_ms
        while not (found := what()):
            assert self.now_ms < end_ms, f"not within {within_ms} ms"
            self.advance(STEP_MS)
        return found

    # -- who is what -------------------------------------------------------------------------

    def start_all(self) -> None:
        for host in self.hosts.values():
            host.start()

    @property
    def record(self) -> GroupRecord | None:
        value = self.authority.read_now(KEY).value
        return decode_group_record(value) if value else None

    @property
    def serving(self) -> MemberHost | None:
        """The master of the newest epoch, if it takes clients."""
        record = self.record
        host = None if record is None else self.hosts[record.master]
        if host is None or not host.is_ready or host.is_frozen or host.leader is None:
            return None
        return host if host.member.record == record else None

    def are_in_sync(self) -> bool:
        """Whether all members are."""
        record = self.record
        return (
            self.serving is not None
            and record is not None
            and record.in_sync.keys() == self.hosts.keys()
        )

    def note_epoch(self, record: GroupRecord, log_end: int) -> None:
        assert record.epoch not in self.epochs, f"epoch {record.epoch} has two masters"
        self.epochs[record.epoch] = (record.master, log_end)

    # -- the authority -----------------------------------------------------------------------

    def read(self, host: MemberHost) -> None:
        life = host.member

        def answer(found: object) -> None:
            if host.is_up and host.member is life:
                if found is None:
                    host.member.authority_failed("no answer", self.now_ms)
                else:
                    host.member.record_read(found, self.now_ms)  # type: ignore[arg-type]
                host.after()

        def ask() -> None:
            is_lost = not self._reaches(host) or self.chance.random() < self.authority_loss
            found = None if is_lost else self.authority.read_now(KEY)
            self.later(self._delay(), lambda: host.arrive(lambda: answer(found)))

        self.later(self._delay(), ask)

    def write(self, host: MemberHost, record: GroupRecord, revision: str) -> None:
        life = host.member

        def late() -> None:
            self.authority.write_now(KEY, record.encode(), revision)

        def answer(outcome: object) -> None:
            if not host.is_up or host.member is not life:
                return
            if outcome == "unknown":
                host.member.authority_failed("no answer", self.now_ms)
            elif outcome is None:
                host.member.write_refused(self.now_ms)
            else:
                host.member.write_succeeded(outcome, self.now_ms)  # type: ignore[arg-type]
            host.after()

        def ask() -> None:
            outcome: object = "unknown"
            chance = self.chance.random()
            if self._reaches(host) and chance >= self.authority_loss:
                outcome = self.authority.write_now(KEY, record.encode(), revision)
                if chance < 2 * self.authority_loss:
                    outcome = "unknown"
            elif chance < self.authority_loss / 2:
                # It takes effect long after nobody waits for it.
                self.later(self.chance.randrange(5_000), late)
            self.later(self._delay(), lambda: host.arrive(lambda: answer(outcome)))

        self.later(self._delay(), ask)

    def _reaches(self, host: MemberHost) -> bool:
        is_cut = host.name in self.without_authority or host.drills.lacks_authority(self.now_ms)
        return self.authority.is_reachable and not is_cut

    def _delay(self) -> int:
        return self.chance.randint(0, self.delay_max_ms)
