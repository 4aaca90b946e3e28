"""A member whose disk or ports fail while it changes its role: it is retried, not given up."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.group_settings import GroupSettings
from escrowmq.base.message import Message
from escrowmq.base.replica_settings import ReplicaSettings
from escrowmq.base.store_settings import StoreSettings
from escrowmq.broker.replication.group_master import GroupMaster
from escrowmq.errors import StoreLocked
from escrowmq.group import member_timeouts
from escrowmq.group.copying import CutRequired
from escrowmq.group.membership import GroupMembership
from escrowmq.group.orders import FollowMaster
from escrowmq.group.state import PATH, MemberState, decode_state
from escrowmq.net.disk import FileDisk
from escrowmq.net.incoming_connections import bind_port
from escrowmq.net.tls import PortOptions
from escrowmq.node import broker as node_broker
from escrowmq.node.broker import BrokerNode
from escrowmq.node.broker_factory import BrokerFactory
from escrowmq.node.broker_ports import GroupPorts
from escrowmq.node.config import NodeSettings
from escrowmq.node.connection_settings import ConnectionSettings
from escrowmq.node.group import BrokerPlan, GroupNode, steady_ms
from escrowmq.node.group_folder import GroupFolder
from escrowmq.store.store import LOCK, PutStatus
from escrowmq.testing.authority import MemoryAuthority

HOST = "127.0.0.1"
WAIT_S = 60


@pytest.fixture(autouse=True)
def _waits_for_no_other_creator(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that is alone in its group need not wait whether another one creates it."""
    monkeypatch.setattr(member_timeouts, "CREATE_WAIT_MS", 0)


class Failing:
    """Makes brokers; the first `count` masters fail as on a disk that is full."""

    def __init__(self, process: BrokerFactory, doors: GroupPorts, count: int) -> None:
        self._process, self._doors, self.count = process, doors, count

    def __call__(self, membership: GroupMembership, number: int) -> BrokerNode:
        if membership.leads is not None and self.count:
            self.count -= 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._process.make_member(membership, number, self._doors)


async def at_once(_broker: BrokerNode) -> None:
    pass


@asynccontextmanager
async def member(
    folder: Path,
    *,
    failures: int = 0,
    opened: Callable[[BrokerNode], Awaitable[None]] = at_once,
    authority: MemoryAuthority | None = None,
    ended: list[bool] | None = None,
    grpc_port: int | None = None,
) -> AsyncIterator[GroupNode]:
    """A member that is alone in its group. `opened`: what happens when a broker of it has been
    opened, before it is used. `ended`: gets an entry if the member ends by itself; by default it
    must not. `grpc_port`: 0 for one that the system picks."""
    settings, store = BrokerSettings(name="b"), StoreSettings(log_segment_size=1 << 20)
    grpc_socket = None if grpc_port is None else bind_port(HOST, grpc_port)
    process = BrokerFactory(
        settings=settings,
        store=store,
        node=NodeSettings(),
        data=str(folder),
        host=HOST,
        port=0,
        grpc_port=grpc_socket,
        operator=("console", "secret"),
        port_options=PortOptions(),
        ports=ConnectionSettings(),
        replica=None,
    )
    doors = GroupPorts(ReplicaSettings(), host=HOST, port=0, grpc_socket=grpc_socket)
    has_ended: list[bool] = [] if ended is None else ended
    async with AsyncExitStack() as closing:
        closing.callback(doors.close)
        node = GroupNode(
            GroupSettings(authority="memory://", member="a"),
            BrokerPlan(
                Failing(process, doors, failures),
                cluster=settings.cluster,
                broker=settings.name,
                timeout_ms=3_000,
                loses_nothing=False,
            ),
            GroupFolder(str(folder), "", store, boot="this one"),
            authority or MemoryAuthority(),
            secret=b"",
            address=f"{HOST}:{doors.ha_port}",
            client_address=f"{HOST}:{doors.port}",
            on_failure=lambda: has_ended.append(True),
        )
        closing.push_async_callback(node.close)

        async def open_broker(broker: BrokerNode) -> None:
            await process.open_broker(broker)
            await opened(broker)

        await node.open(open_broker)
        yield node
        assert ended is not None or not has_ended


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not is_so():
            await asyncio.sleep(0.01)


async def replaced(node: GroupNode) -> None:
    """Another member has taken over, and this one follows it."""
    mine, authority = node.member.record, node._authority
    assert mine is not None
    assert isinstance(authority, MemoryAuthority)
    other = replace(mine, epoch=2, master="z", address=f"{HOST}:1", in_sync={"z": "i"})
    authority.put("DefaultCluster/b", other.encode())
    node.member.read_soon(0)
    node._perform_and_reset_timer()
    await until(lambda: node._group_copy is not None)


def test_a_member_that_cannot_open_as_master_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with member(tmp_path, failures=2) as node:
            await until(lambda: node.group_master is not None)
            assert not node.write_refusal_reason()
            record = node.member.record
            assert record is not None
            assert record.epoch == 1

    asyncio.run(main())
    assert sum("it is retried" in text for text in caplog.messages) == 2


def test_a_member_that_was_replaced_while_it_failed_follows(tmp_path: Path) -> None:
    async def main() -> None:
        async with member(tmp_path, failures=1) as node:
            await until(lambda: node.member.is_leader)
            await replaced(node)
            assert not node.member.is_leader
            assert node.group_master is None

    asyncio.run(main())


def test_a_member_that_never_opens_as_master_follows_the_one_that_does(tmp_path: Path) -> None:
    """It reads the record although it is not yet what the record says."""

    async def main() -> None:
        async with member(tmp_path, failures=1_000) as node:
            await until(lambda: node.member.is_leader)
            await replaced(node)
            assert not node.member.is_leader

    asyncio.run(main())


def test_a_member_that_could_not_close_its_broker_leads_from_where_its_log_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with member(tmp_path) as node:
            await until(lambda: node.group_master is not None)
            assert node.current is not None
            message = Message(topic="orders", body=b"one")
            node.current.core.broker.store.put(message, node.current.now_ms())
            end = node.current.core.broker.store.end_offset
            await replaced(node)
            current, record = node.current, node.member.record
            assert current is not None
            assert record is not None
            close = current.core.close

            def fail(now_ms: int) -> None:
                close(now_ms)
                raise OSError(errno.EIO, os.strerror(errno.EIO))

            monkeypatch.setattr(current.core, "close", fail)
            node._folder.log_end = 0
            assert isinstance(node._authority, MemoryAuthority)
            mine = replace(record, mark="n", in_sync={"z": "i", "a": node.member.state.incarnation})
            node._authority.put("DefaultCluster/b", mine.encode())
            node.member.take_over_now(steady_ms())
            node._perform_and_reset_timer()
            node._acted.set()
            await until(lambda: node.group_master is not None)
            assert node.member.state.epoch_starts[-1].log_offset == end

    asyncio.run(main())


def test_a_member_that_is_closed_asks_the_authority_nothing_more(tmp_path: Path) -> None:
    async def main() -> None:
        authority = MemoryAuthority()
        async with member(tmp_path, authority=authority) as node:
            await until(lambda: node.group_master is not None)
        reads = authority.reads_count
        node.member.read_soon(0)
        node.member.wake(steady_ms())
        node.perform_orders()
        await asyncio.sleep(0)
        assert authority.reads_count == reads

    asyncio.run(main())


def test_a_cut_that_fails_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cuts: list[int] = []

    def fail_once(folder: GroupFolder, *, at: int, read_from: int) -> None:
        cuts.append(read_from)
        if len(cuts) == 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def main() -> None:
        async with member(tmp_path) as node:
            await until(lambda: node.group_master is not None)
            await replaced(node)
            monkeypatch.setattr(GroupFolder, "cut_log", fail_once)
            node._order_cut(CutRequired(0, is_anew=False))
            await until(lambda: len(cuts) == 2)
            await until(lambda: node._group_copy is not None)
            assert cuts == [0, 0]

    asyncio.run(main())


def fail_to_write(folder: GroupFolder, state: MemberState) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_member_whose_state_cannot_be_stored_on_behalf_of_its_broker_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would copy on in an epoch that it forgets at its next start."""
    ended: list[bool] = []

    async def main() -> None:
        async with member(tmp_path, ended=ended) as node:
            await until(lambda: node.group_master is not None)
            await replaced(node)
            copy, history = node._group_copy, ((1, 0), (2, 0))
            assert copy is not None
            with monkeypatch.context() as broken:
                broken.setattr(GroupFolder, "write_state", fail_to_write)
                with pytest.raises(OSError, match="error"):
                    copy.adopt_epoch(2, history)
            copy.adopt_epoch(2, history)  # at the next connection: there is nothing new
            stored = decode_state((tmp_path / PATH).read_bytes())
            assert ended or stored.history == history

    asyncio.run(main())


def test_a_member_whose_state_cannot_be_stored_ends_also_while_it_changes_its_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change would be tried again, without what was to follow the state."""
    ended: list[bool] = []

    async def main() -> None:
        async with member(tmp_path, ended=ended) as node:
            await until(lambda: node.group_master is not None)
            await replaced(node)
            with monkeypatch.context() as broken:
                broken.setattr(GroupFolder, "write_state", fail_to_write)
                node.member.adopt_history(2, ((1, 0), (2, 0)))
                with pytest.raises(OSError, match="error"):
                    await node._carry_out_order(FollowMaster(node.member.record, ""))
            assert ended

    asyncio.run(main())


def is_open_in(folder: Path) -> bool:
    return decode_state((folder / PATH).read_bytes()).is_open


def is_locked(folder: Path, name: str) -> bool:
    disk = FileDisk(str(folder))
    try:
        disk.lock(name)
    except StoreLocked:
        return True
    finally:
        disk.close()
    return False


def leads(broker: BrokerNode) -> bool:
    return isinstance(broker.core.assembly.copying.front, GroupMaster)


def test_a_second_process_on_a_members_folder_writes_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with member(tmp_path) as node:
            await until(lambda: node.group_master is not None)
            before = (tmp_path / PATH).read_bytes()
            with pytest.raises(StoreLocked):
                async with member(tmp_path):
                    pass
            assert (tmp_path / PATH).read_bytes() == before
            assert is_open_in(tmp_path)
        assert not is_open_in(tmp_path)

    asyncio.run(main())


def test_a_member_on_the_folder_of_another_kind_of_broker_writes_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with member(tmp_path):
            pass
        other = FileDisk(str(tmp_path))
        other.lock(LOCK)
        before = (tmp_path / PATH).read_bytes()
        with pytest.raises(StoreLocked):
            async with member(tmp_path):
                pass
        assert (tmp_path / PATH).read_bytes() == before
        other.close()
        async with member(tmp_path):  # it did not keep the folder locked
            pass

    asyncio.run(main())


def test_a_broker_that_is_being_opened_when_the_process_ends_is_closed(tmp_path: Path) -> None:
    async def main() -> None:
        stage = asyncio.Event()

        async def opened(broker: BrokerNode) -> None:
            if leads(broker):
                stage.set()
                await asyncio.Event().wait()

        async with member(tmp_path, opened=opened):
            await stage.wait()
        assert not is_locked(tmp_path, LOCK)
        assert not is_open_in(tmp_path)

    asyncio.run(main())


def test_a_broker_that_could_not_be_opened_can_be_tried_again(tmp_path: Path) -> None:
    async def main() -> None:
        left = 1

        async def opened(broker: BrokerNode) -> None:
            nonlocal left
            if leads(broker) and left:
                left -= 1
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        async with member(tmp_path, opened=opened) as node:
            await until(lambda: node.group_master is not None)

    asyncio.run(main())


def test_a_member_whose_log_could_not_be_made_durable_does_not_count_as_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with member(tmp_path) as node:
            await until(lambda: node.group_master is not None)
            assert node.current is not None
            store = node.current.core.broker.store
            monkeypatch.setattr(store.flusher, "sync_everything", lambda _now_ms: False)
            message = Message(topic="orders", body=b"one")
            assert store.put(message, node.current.now_ms()).status is PutStatus.OK
            assert store.end_offset > store.ends.durable
        assert is_open_in(tmp_path)

    asyncio.run(main())


def test_a_member_that_is_stopped_while_it_closes_a_broker_closes_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with member(tmp_path) as node:
            await until(lambda: node.group_master is not None)
            closing = asyncio.ensure_future(node._close_broker())
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
        assert not is_locked(tmp_path, LOCK)
        assert not is_open_in(tmp_path)

    asyncio.run(main())


@pytest.mark.parametrize("is_fit", [True, False])
def test_an_authority_that_did_not_answer_at_the_start_is_tested_when_it_does(
    tmp_path: Path, is_fit: bool
) -> None:
    async def main() -> None:
        authority, ended = MemoryAuthority(), list[bool]()
        authority.is_reachable, authority.ignores_conditions = False, not is_fit
        async with member(tmp_path, authority=authority, ended=ended) as node:
            await until(lambda: bool(node.member.authority_fault))
            authority.is_reachable = True
            await until(lambda: node.group_master is not None or bool(ended))
            assert bool(ended) is not is_fit
            assert bool(authority.writes_count) is is_fit

    asyncio.run(main())


def test_a_master_that_cannot_open_its_ports_for_clients_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It led on, without a port for gRPC clients, and nothing was logged."""

    def make(*_: object, **_more: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(node_broker, "self_signed_tls", make)

    async def main() -> None:
        ended: list[bool] = []
        async with member(tmp_path, grpc_port=0, ended=ended):
            await until(lambda: bool(ended))

    asyncio.run(main())
    assert "this member stops: it cannot open its ports for clients" in caplog.text
    assert "No space left on device" in caplog.text
