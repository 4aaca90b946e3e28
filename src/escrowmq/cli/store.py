"""`escrowmq store check DIR` and `escrowmq store dump DIR`: inspect a store, ours or RocketMQ's.

Both only read. `check` exits with 0 if the store is intact, 1 if it is damaged and 2 if it cannot
be read; `dump` prints messages, one a line."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Final

import msgspec

from escrowmq.base.human_format import format_moment
from escrowmq.base.message import Property, StoredMessage
from escrowmq.base.store_settings import StoreSettings
from escrowmq.broker.upkeep.start_checks import table_parsers
from escrowmq.cli.printing import print_error_line, print_line
from escrowmq.cli.progress import Progress
from escrowmq.cli.times import parse_count, parse_whole
from escrowmq.codec.log_walker import LogWalker
from escrowmq.codec.record import decode_record
from escrowmq.errors import CorruptRecord, EscrowMQError
from escrowmq.net.clock import SystemClock
from escrowmq.net.read_only import ReadOnlyDisk
from escrowmq.store.check import CheckResult, StoreCheck, with_actual_file_sizes
from escrowmq.store.commit_log import FOLDER
from escrowmq.store.consume_queue import ConsumeQueue
from escrowmq.store.queues import Queues
from escrowmq.store.segment import Segments

SOUND: Final = 0
DAMAGED: Final = 1
UNUSABLE: Final = 2
_BODY_SHOWN_MAX: Final = 60


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the verb's actions and options to its parser."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser("check", help="check whether log, queues, index and offsets agree")
    dump = actions.add_parser("dump", help="print messages")
    for action in (check, dump):
        action.add_argument("folder", metavar="DIR", help="data folder of a broker")
        action.add_argument(
            "--commitlog", metavar="DIR", help="storePathCommitLog, if the log is elsewhere"
        )
        action.add_argument("--json", action="store_true", help="machine-readable output")
    check.add_argument(
        "--index-slots",
        type=parse_count,
        help="maxHashSlotNum of the store, if it is not the default",
    )
    check.add_argument(
        "--index-entries",
        type=parse_count,
        help="maxIndexNum of the store, if it is not the default",
    )
    dump.add_argument("--topic", help="only this topic's messages")
    dump.add_argument(
        "--queue", type=parse_whole, help="only this queue's messages, in the queue's order"
    )
    dump.add_argument(
        "--from",
        dest="begin",
        type=parse_whole,
        default=0,
        metavar="OFFSET",
        help="begin at this queue offset (with --topic and --queue) or log offset",
    )
    dump.add_argument(
        "--limit", type=parse_count, default=100, help="maximum number of messages (default 100)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the verb's action; return the exit code."""
    try:
        log = {FOLDER: arguments.commitlog} if arguments.commitlog else {}
        disk = ReadOnlyDisk(arguments.folder, elsewhere=log)
        if arguments.action == "check":
            return _run_check(disk, arguments)
        return _run_dump(disk, arguments)
    except (EscrowMQError, OSError) as error:
        print_error_line(f"escrowmq store {arguments.action}: {error}")
        return UNUSABLE


def _run_check(disk: ReadOnlyDisk, arguments: argparse.Namespace) -> int:
    settings = StoreSettings()
    changes = {
        "index_slots_count": arguments.index_slots or settings.index_slots_count,
        "index_entries_max": arguments.index_entries or settings.index_entries_max,
    }
    settings = msgspec.structs.replace(settings, **changes)
    progress = Progress("checking the log")
    try:
        check = StoreCheck(disk, settings, readers=table_parsers(), tell=progress)
        checked = check.run(SystemClock().now_ms())
    finally:
        progress.erase()
    if arguments.json:
        found = msgspec.to_builtins(checked) | {"is_sound": checked.is_sound}
        print(json.dumps(found, indent=2))  # escapes all that is not ASCII itself
    else:
        _print_result(checked)
    return SOUND if checked.is_sound else DAMAGED


def _print_result(checked: CheckResult) -> None:
    print_line(
        f"log {checked.log_begin}..{checked.log_end}: {checked.records_count} records; "
        f"{checked.queues_count} queues, {checked.units_count} units; "
        f"{checked.index_entries_count} index entries"
    )
    for finding in checked.findings:
        print_line(f"{'DAMAGE' if finding.is_damage else 'note'} {finding.where}: {finding.text}")
    if checked.is_sound:
        print_line("sound")
    elif not any(f.is_damage and f.where.startswith(FOLDER) for f in checked.findings):
        print_line(
            "the log is intact: a start repairs queues and index from it. If that fails, move "
            "consumequeue, index and queues.json away, all of them, and start: they are recreated"
        )


def _run_dump(disk: ReadOnlyDisk, arguments: argparse.Namespace) -> int:
    settings = with_actual_file_sizes(disk, StoreSettings())
    segments = Segments(disk, FOLDER, segment_size=settings.log_segment_size)
    segments.load()
    if arguments.queue is not None:
        if arguments.topic is None:
            print_error_line("escrowmq store dump: --queue needs --topic")
            return UNUSABLE
        queues = Queues(disk, segment_size=settings.queue_segment_size)
        queue = queues.get_or_create(arguments.topic, arguments.queue)
        queue.load()
        messages = _queue_messages(segments, queue, arguments.begin)
    else:
        queues = Queues(disk, segment_size=settings.queue_segment_size)
        queues.load()
        scan = LogWalker(segments, leads_to=queues.unit_check())
        messages = _log_messages(segments, scan, arguments.begin, arguments.topic)
    damaged = shown = 0
    for log_offset, message in messages:
        if shown + damaged >= arguments.limit:
            break
        if message is None:
            damaged += 1
            print_error_line(f"log offset {log_offset}: cannot be read")
            continue
        print_line(_message_line(message, is_json=arguments.json))
        shown += 1
    return DAMAGED if damaged else SOUND


def _queue_messages(
    segments: Segments, queue: ConsumeQueue, begin: int
) -> Iterator[tuple[int, StoredMessage | None]]:
    for queue_offset in range(max(begin, queue.min), queue.end):
        unit = queue.unit(queue_offset)
        if unit is None:
            continue
        try:
            message = decode_record(segments.read(unit[0], unit[1]), check_crc=True)
            fits = (message.log_offset, message.queue_offset) == (unit[0], queue_offset)
            yield unit[0], message if fits else None
        except CorruptRecord:
            yield unit[0], None


def _log_messages(
    segments: Segments, scan: LogWalker, begin: int, topic: str | None
) -> Iterator[tuple[int, StoredMessage | None]]:
    start = segments.first_position if begin <= segments.first_position else scan.next_record(begin)
    if start is None:
        return
    wanted = topic.encode() if topic is not None else None
    reported_count = 0
    for records in scan.record_batches(start):
        for damage in scan.damaged[reported_count:]:
            yield damage.log_offset, None
        reported_count = len(scan.damaged)
        for record in records:
            if wanted is None or record.topic == wanted:
                data = segments.read(record.log_offset, record.size)
                try:
                    yield record.log_offset, decode_record(data)
                except CorruptRecord:
                    yield record.log_offset, None


def _message_line(message: StoredMessage, *, is_json: bool) -> str:
    if is_json:
        found = msgspec.to_builtins(message, builtin_types=(bytes,))
        for name in ("body", "born_host", "store_host"):
            found[name] = found[name].decode("latin-1") if name == "body" else found[name].hex()
        return json.dumps(found)
    stored_ms = message.stored_ms
    moment = format_moment(stored_ms) if stored_ms > 0 else f"{stored_ms} ms"
    keys = message.properties.get(Property.KEYS) or message.properties.get(Property.UNIQ_KEY, "")
    body = message.body[:_BODY_SHOWN_MAX]
    more = "..." if len(message.body) > len(body) else ""
    return (
        f"{message.log_offset} {message.topic}/{message.queue_id}@{message.queue_offset} "
        f"{moment} flags={message.sys_flag:#x} "
        f"tags={message.properties.get(Property.TAGS, '')} keys={keys} "
        f"{len(message.body)} bytes {body!r}{more}"
    )
