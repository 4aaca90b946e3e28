"""What each engine must do, whatever it is."""

from __future__ import annotations

import asyncio
import secrets

from escrowmq.authority.engine_authority import EngineAuthority
from escrowmq.base.authority import ABSENT, Authority, VersionedRecord
from escrowmq.errors import AuthorityUnreachable


async def count_up(authority: Authority, key: str, count: int) -> list[int]:
    """Count a record up until this has succeeded so many times; the numbers that were written. Each
    value has something of its own beside the number."""
    counted: list[int] = []
    while len(counted) < count:
        try:
            found = await authority.read(key)
            number = number_of(found) + 1
            value = f"{number} {secrets.token_hex(8)}".encode()
            written = await authority.write_if(key, value, found.revision)
        except AuthorityUnreachable:
            continue  # whether it was written is unknown, so it is not counted
        if written is not None:
            assert written.value == value
            counted.append(number)
    return counted


def number_of(record: VersionedRecord) -> int:
    """The number of a record; 0 where there is none."""
    return int(record.value.split()[0]) if record.value else 0


async def contend(authorities: list[Authority], key: str, count_each: int) -> list[int]:
    """All count the same record up; the numbers that were written, in order."""
    counted = await asyncio.gather(*(count_up(each, key, count_each) for each in authorities))
    return sorted(number for each in counted for number in each)


async def basics(authority: EngineAuthority, key: str) -> None:
    """Creating, changing, conflicts, and records that are empty."""
    assert await authority.read(key) == ABSENT
    assert await authority.write_if(key, b"0", "5-0123456789abcdef") is None
    first = await authority.write_if(key, b"\x00\xff one", "")
    assert first is not None
    assert first == await authority.read(key)
    assert first.value == b"\x00\xff one"
    assert await authority.write_if(key, b"two", "") is None
    second = await authority.write_if(key, b"two", first.revision)
    assert second is not None
    assert second == await authority.read(key)
    assert second.revision != first.revision
    assert await authority.write_if(key, b"three", first.revision) is None
    empty = await authority.write_if(key, b"", second.revision)
    assert empty is not None
    assert empty == await authority.read(key) != ABSENT
    last = await authority.write_if(key, b"last", empty.revision)
    assert last is not None
    await authority._engine.delete_once(key)
    await authority._engine.delete_once(key)
    assert await authority.read(key) == ABSENT
    assert await authority.write_if(key, b"again", last.revision) is None
    assert await authority.write_if(key, b"anew", "") is not None
    await authority._engine.delete_once(key)
