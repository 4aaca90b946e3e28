"""The files of a group member in its data folder, besides those of its broker."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from escrowmq.base.group_report import FaultReport
from escrowmq.base.store_settings import StoreSettings
from escrowmq.errors import StoreLocked, UsageError
from escrowmq.group.state import PATH, MemberState, decode_state, state_after_start
from escrowmq.net.disk import FileDisk
from escrowmq.node.reserved_file import ReservedFile
from escrowmq.node.store_removal import remove_store
from escrowmq.store.commit_log import FOLDER
from escrowmq.store.cut import cut_log
from escrowmq.store.folder_check import has_log
from escrowmq.store.store import LOCK

_SAFE: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
_NAME_MAX: Final = 64
_FAULTS: Final = "drills.json"
_LOCK: Final = "group.lock"
"""A process holds it as long as it is the folder's member. The store's lock is released while the
role changes."""


class GroupFolder:
    """Reads and writes the member's state; cuts or empties the store while no broker has it
    open."""

    def __init__(self, data: str, log: str, settings: StoreSettings, *, boot: str) -> None:
        self._root = data
        self._log = log
        self._settings = settings
        self._boot = boot
        self._disk = FileDisk(data)
        self._state = ReservedFile(self._disk, PATH)
        self.has_log = has_log(self._store_disk())
        self.log_end = 0
        """Where the log ended when a broker was last closed."""
        self.was_closed = True
        """Whether the former process had closed its files."""

    def _store_disk(self) -> FileDisk:
        return FileDisk(self._root, elsewhere={FOLDER: self._log} if self._log else None)

    def open_at_start(self, name: str, *, loses_nothing: bool) -> MemberState:
        """Lock the folder, and return its state with what a start changes in it. Raises UsageError
        for an invalid member name, StoreLocked if another process uses the folder: nothing is
        written then."""
        if len(name) > _NAME_MAX or not set(name) <= _SAFE:
            raise UsageError(
                f"escrowMember={name}: letters, digits and -_. are allowed, at most {_NAME_MAX}"
            )
        self._lock()
        data = self._disk.read(PATH)
        fresh = secrets.token_hex(8)
        if data is None:
            state = MemberState(member=name or f"m-{secrets.token_hex(3)}", incarnation=fresh)
        else:
            state = decode_state(data)
            if name and name != state.member:
                raise UsageError(
                    f"escrowMember={name}: this folder belongs to member {state.member}. "
                    "Name another folder, or the same member"
                )
        self.was_closed = not state.is_open
        if state.is_emptying:
            state = self.empty_store(state)
        state = state_after_start(state, boot=self._boot, loses_nothing=loses_nothing, fresh=fresh)
        self.write_state(state)
        return state

    def _lock(self) -> None:
        self._disk.lock(_LOCK)
        store = FileDisk(self._root)
        try:
            store.lock(LOCK)  # a broker outside of any group may have it
        except StoreLocked:
            self._disk.close()
            raise
        finally:
            store.close()

    def close(self) -> None:
        """Release the folder for other processes."""
        self._disk.close()

    def write_state(self, state: MemberState) -> None:
        """Write the state durably. This works even on a full disk, because a member that cannot
        write it could not follow a new master."""
        self._state.write(state.encode())

    def read_faults(self) -> tuple[FaultReport, ...]:
        """Return the faults that drills have injected into this member; none if the file cannot be
        read."""
        try:
            return msgspec.json.decode(
                self._disk.read(_FAULTS) or b"[]", type=tuple[FaultReport, ...]
            )
        except msgspec.MsgspecError:
            return ()

    def write_faults(self, faults: tuple[FaultReport, ...]) -> None:
        """Store the injected faults durably."""
        self._disk.replace(_FAULTS, msgspec.json.encode(faults))

    def record_close(self, state: MemberState) -> None:
        """Record in the state that all files are closed, and the whole log is durable."""
        self.write_state(replace(state, is_open=False))

    def cut_log(self, *, at: int, read_from: int) -> None:
        """Cut the log at an offset, durably."""
        disk = self._store_disk()
        try:
            cut_log(disk, self._settings, at=at, read_from=read_from)
        finally:
            disk.close()

    def empty_store(self, state: MemberState) -> MemberState:
        """Remove the store. The member's identity and all files that are not ours remain. If a
        crash interrupts this, the next start continues."""
        state = replace(state, is_emptying=True, history=())
        self.write_state(state)
        root = Path(self._root)
        remove_store(root, Path(self._log) if self._log else root / FOLDER)
        state = replace(state, is_emptying=False)
        self.write_state(state)
        return state
