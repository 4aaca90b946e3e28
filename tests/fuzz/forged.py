"""Stores in which one account forges records of others, in bodies and properties."""

import argparse
import multiprocessing
import random
import sys
import time
from collections.abc import Iterable

from escrowmq.base.message import Message
from escrowmq.base.store_settings import StoreSettings
from escrowmq.codec.record import decode_record, encode_record
from escrowmq.codec.record_layout import HEAD_V4
from escrowmq.store.store import PutResult, PutStatus, Store
from escrowmq.testing.disk import CrashLoss, SimDisk

LOG_SIZE = 1 << 16
NEVER_MS = 1 << 62
MINE, THEIRS = "mine", "theirs"


def settings(chance: random.Random) -> StoreSettings:
    return StoreSettings(
        log_segment_size=LOG_SIZE,
        queue_segment_size=20 * chance.choice([8, 256]),
        index_slots_count=16,
        index_entries_max=64,
        reserve_size=1024,
        is_sync_flush=chance.random() < 0.5,
        appends_crc=chance.random() < 0.2,
    )


class Forger:
    """One account: it foresees where its message will stand, and may put any bytes into it."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def record(self, log_offset: int, now_ms: int) -> bytes:
        """A record that stands at a place, of anybody's topic, and may claim what is behind it."""
        chance = self.chance
        topic = chance.choice([THEIRS, THEIRS, "RMQ_SYS_TRANS_HALF_TOPIC", "other"])
        forged = bytearray(
            encode_record(
                Message(
                    topic=topic,
                    body=b"FORGED",
                    queue_id=0,
                    properties={"UNIQ_KEY": "forged"},
                    sys_flag=chance.choice([0, 0, 8, 12]),
                ),
                properties=b"UNIQ_KEY\x01forged\x02",
                queue_offset=chance.choice([0, 1, 2, 5, chance.randrange(40)]),
                log_offset=log_offset,
                stored_ms=now_ms + chance.choice([0, 0, 1, 100_000]),
            )
        )
        if chance.random() < 0.3:  # it claims bytes behind itself
            extra = chance.choice([10, 200, 500, 3000])
            size = len(forged) + extra
            forged[0:4] = size.to_bytes(4, "big")
            at = forged.rindex(b"UNIQ_KEY\x01forged") - 2
            forged[at : at + 2] = (len(forged) - at - 2 + extra).to_bytes(2, "big")
        return bytes(forged)

    def body(self, place: int, now_ms: int) -> bytes:
        """The body of a message whose record will stand at a place."""
        chance, at = self.chance, place + HEAD_V4.size
        parts: list[bytes] = []
        for _ in range(chance.randint(1, 6)):
            part = self.record(at, now_ms)
            if chance.random() < 0.2:
                part = bytes(chance.choice([8, 512, 600])) + part[: chance.randrange(len(part))]
            parts.append(part)
            at += len(part)
        return b"".join(parts)

    def properties(self) -> dict[str, str]:
        """Properties that stores read something into."""
        chance = self.chance
        found = {"UNIQ_KEY": f"U{chance.randrange(99)}", "KEYS": chance.choice(["a", "a b", "\0"])}
        if chance.random() < 0.5:
            found["__CRC32#"] = chance.choice(["0000000000", "1234567890", "x", "0"])
        if chance.random() < 0.3:
            found["z"] = "tail\0"
        return found


def put(store: Store, message: Message, now_ms: int, chance: random.Random) -> PutResult:
    encoded = "".join(f"{k}\x01{v}\x02" for k, v in message.properties.items()).encode()
    if chance.random() < 0.3:
        encoded = encoded[:-1]  # as some clients send them
    if chance.random() < 0.5:
        (done,) = store.batches.put(
            message, [(0, message.body, encoded, message.properties)], now_ms
        )
    else:
        done = store.put(message, now_ms, properties=encoded)
    return done


def seen(store: Store) -> dict[tuple[str, int], list[bytes]]:
    """What everybody can read."""
    found: dict[tuple[str, int], list[bytes]] = {}
    for topic in store.topics():
        for queue_id in store.queues_of(topic):
            bodies = found.setdefault((topic, queue_id), [])
            at, end = store.bounds(topic, queue_id)
            while at < end:
                got = store.get(topic, queue_id, at, count_max=1)
                bodies += [decode_record(chunk).body for chunk in got.chunks]
                at = max(got.next_offset, at + 1)
    return found


def sync(store: Store, now_ms: int) -> None:
    """Everything becomes durable."""
    while store.durable_offset < store.end_offset or store.flusher.wake_at_ms() < NEVER_MS:
        wanted = store.next_sync(now_ms)
        if wanted is not None:
            for file in wanted.files:
                file.sync()
            store.sync_finished(wanted.log_offset, now_ms)
        now_ms += 10_000


def play(seed: int) -> None:
    chance = random.Random(seed)
    disk, chosen, forger = SimDisk(), settings(chance), Forger(chance)
    store = Store(disk, chosen, boot="boot")
    now_ms = 1_000_000
    store.open(now_ms)
    forged_places: list[int] = []
    for number in range(chance.randint(4, 30)):
        now_ms += chance.randint(0, 3)
        if chance.random() < 0.5:
            body = b"%d of theirs" % number
            message = Message(topic=THEIRS, body=body, properties={"UNIQ_KEY": f"T{number}"})
            assert store.put(message, now_ms).status is PutStatus.OK
        else:
            place = store.end_offset
            body = forger.body(place, now_ms)
            message = Message(topic=MINE, body=body, properties=forger.properties())
            done = put(store, message, now_ms, chance)
            assert done.status is PutStatus.OK
            if done.log_offset == place:
                forged_places += range(place + 1, done.log_end, 1)
    sync(store, now_ms)
    now_ms += 600_000
    before = seen(store)
    places = chance.sample(forged_places, min(60, len(forged_places)))
    assert all(store.read(place) is None for place in places)
    if chance.random() < 0.4:
        store.close(now_ms)
    disk.crash(chance, chance.choice(list(CrashLoss)))
    damaged = chance.random() < 0.3 and _damage(disk, chance, store)
    again = Store(disk, chosen, boot=chance.choice(["boot", "another"]))
    report = again.open(now_ms)
    after = seen(again)
    theirs = before.get((THEIRS, 0), [])
    assert after.get((THEIRS, 0), []) == theirs, report
    if not damaged:
        assert not report.damaged
        assert after == before
    assert damaged or after.keys() <= before.keys(), report
    # A bit that flips in the name of a topic makes another name, under which the forger's own
    # message may stand as a whole; nothing that it has forged does.
    own = before.get((MINE, 0), [])
    for key in after.keys() - before.keys():
        assert all(body in own for body in after[key]), (key, report)
    assert all(again.read(place) is None for place in places)


def _damage(disk: SimDisk, chance: random.Random, store: Store) -> bool:
    """A bit of one of the forger's messages flips."""
    end = store.bounds(MINE, 0)[1]
    if f"consumequeue/{MINE}/0/{0:020d}" not in disk.files:
        return False
    units = disk.files[f"consumequeue/{MINE}/0/{0:020d}"].live
    at = 20 * chance.randrange(min(end, len(units) // 20))
    log_offset = int.from_bytes(units[at : at + 8], "big")
    size = int.from_bytes(units[at + 8 : at + 12], "big")
    position = log_offset + chance.randrange(size)
    start = position - position % LOG_SIZE
    disk.flip_bit(f"commitlog/{start:020d}", position - start, chance.randrange(8))
    return True


def try_out(seed: int) -> tuple[int, str]:
    """A seed, and why it is no good; empty when it is."""
    try:
        play(seed)
    except Exception as error:  # noqa: BLE001 - told with its seed; the others go on
        return seed, f"{type(error).__name__}: {error}"
    return seed, ""


def main(words: list[str]) -> int:
    """`python -m tests.fuzz.forged --stores 100000 --workers 2 [--first SEED]`.

    So many stores, each with forged records in it, are started again after an end, a kill or a
    loss of power. Prints those that a forgery has changed (the exit code is 1 then), and how long a
    thousand took."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.forged", description=main.__doc__)
    parser.add_argument("--stores", type=int, default=1_000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    wish = parser.parse_args(words)
    seeds = range(wish.first, wish.first + wish.stores)
    began_s, broken = time.monotonic(), 0
    with multiprocessing.Pool(wish.workers) as pool:
        tried: Iterable[tuple[int, str]] = pool.imap_unordered(try_out, seeds, chunksize=50)
        for done, (seed, fault) in enumerate(tried, 1):
            if fault:
                broken += 1
                sys.stdout.write(f"seed {seed}: {fault}\n")
            if done % 10_000 == 0:
                sys.stdout.write(f"{done} stores, {broken} broken\n")
                sys.stdout.flush()
    took_s = time.monotonic() - began_s
    sys.stdout.write(
        f"{wish.stores} stores with forged records, {broken} broken, {took_s:.0f} s "
        f"({took_s * 1000 / max(1, wish.stores):.1f} s for a thousand, {wish.workers} workers)\n"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
