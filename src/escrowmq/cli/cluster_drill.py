"""`escrowmq cluster drill`: injects faults into a group, and reports how it coped."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from escrowmq.base.human_format import format_moment
from escrowmq.cli.cluster_verbs import OK, REFUSED, add_action, connection_settings_of
from escrowmq.cli.printing import print_error_line, print_json, print_line
from escrowmq.cli.times import parse_seconds
from escrowmq.errors import UsageError

if TYPE_CHECKING:
    from escrowmq.drill.faults import FaultStep
    from escrowmq.drill.preconditions import HealthyGroup
    from escrowmq.drill.report import DrillReport, FaultRow
    from escrowmq.drill.run import Drill

RATE: Final = 200
SECONDS: Final = 10.0
WITHIN_S: Final = 120.0
PAUSE_S: Final = 3.0
ROUNDS_MAX: Final = 10


def add_drill(actions: Any) -> argparse.ArgumentParser:  # noqa: ANN401 - as add_action
    """Add the action `drill` to those of `cluster`; return its parser."""
    drill = add_action(
        actions, "drill",
        "inject faults into a group of brokers while clients work, and report the effects; "
            "its members must have been started with escrowDrills=true",
    )  # fmt: skip
    drill.add_argument("broker", metavar="BROKER")
    drill.add_argument(
        "--faults", metavar="FAULT[,FAULT]", default="",
        help="default: switch,authority,cut,isolate,freeze; append @copy for a copy instead of "
            "the master",
    )  # fmt: skip
    drill.add_argument(
        "--kill", action="store_true",
        help="also kill a process (kill -9); a supervisor must restart it",
    )  # fmt: skip
    drill.add_argument(
        "--seconds", type=parse_seconds, default=SECONDS, help=f"how long a fault lasts (default "
        f"{SECONDS:g}, at most 60)",
    )  # fmt: skip
    drill.add_argument(
        "--rate", type=int, default=RATE,
        help=f"messages and transactions a second, on a topic of its own (default {RATE})",
    )  # fmt: skip
    drill.add_argument(
        "--within", type=parse_seconds, default=WITHIN_S, metavar="SECONDS",
        help="how long all members may take to be in sync again after a fault (default 120)",
    )  # fmt: skip
    drill.add_argument(
        "--pause", type=parse_seconds, default=PAUSE_S, metavar="SECONDS",
        help=f"pause before the first fault, and after each (default {PAUSE_S:g})",
    )  # fmt: skip
    drill.add_argument(
        "--rounds", type=int, default=1, help="how often to run through all faults (default 1)"
    )
    drill.add_argument("--keep", metavar="DIR", default="", help="folder for history and report")
    drill.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    return drill


def run_drill(arguments: argparse.Namespace) -> int:
    """Run a drill; return the exit code."""
    from escrowmq.drill.faults import plan_steps
    from escrowmq.drill.load import RATE_MAX, RATE_MIN

    if not RATE_MIN <= arguments.rate <= RATE_MAX:
        raise UsageError(f"--rate {arguments.rate}: {RATE_MIN} to {RATE_MAX} is allowed")
    if not 1 <= arguments.rounds <= ROUNDS_MAX:
        raise UsageError(f"--rounds {arguments.rounds}: 1 to {ROUNDS_MAX} is allowed")
    names = [name for name in arguments.faults.split(",") if name]
    steps = plan_steps(
        names, seconds=arguments.seconds, kills=arguments.kill, rounds=arguments.rounds
    )
    report = asyncio.run(_run_steps(arguments, steps))
    if report is None:
        return OK if arguments.dry_run else REFUSED
    _print_report(report, is_json=arguments.json)
    return OK if report.is_ok else REFUSED


async def _run_steps(arguments: argparse.Namespace, steps: list[FaultStep]) -> DrillReport | None:
    from escrowmq.client.admin.admin import Admin
    from escrowmq.drill.name import make_drill_name
    from escrowmq.drill.preconditions import inspect_group
    from escrowmq.drill.run import Drill, DrillParameters

    settings = connection_settings_of(arguments)
    name = make_drill_name()
    async with Admin(arguments.name_servers, **settings) as admin:
        ground = await inspect_group(admin, arguments.broker, name)
        if arguments.dry_run or not arguments.yes:
            _print_plan(arguments, ground, steps)
        if arguments.dry_run or not (arguments.yes or await _is_confirmed(arguments.broker)):
            return None
        terms = DrillParameters(
            drill=name, rate=arguments.rate, steady_s=arguments.pause, within_s=arguments.within
        )
        drill = Drill(admin, ground, steps, terms, tell=print_error_line)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, _on_interrupt, drill)
        with contextlib.ExitStack() as stack:
            file = _open_history(arguments.keep, stack)
            stack.callback(_divert_logs(arguments.keep))
            report = await drill.run(arguments.name_servers, settings, file)
    if arguments.keep:
        _save_results(Path(arguments.keep), drill, report)
    return report


def _on_interrupt(drill: Drill) -> None:
    print_error_line("interrupted: what was done is healed, and reported. Once more ends that too")
    drill.stop()


def _open_history(keep: str, stack: contextlib.ExitStack) -> BinaryIO | None:
    if not keep:
        return None
    try:
        Path(keep).mkdir(parents=True, exist_ok=True)
        return stack.enter_context((Path(keep) / "history.jsonl").open("xb"))
    except OSError as error:
        raise UsageError(f"--keep {keep}: {error}; name a new folder") from None


def _divert_logs(keep: str) -> Callable[[], None]:
    """Write what clients log to a file, or drop it: lost connections are expected during a drill.
    Return the function that undoes this."""
    handler = logging.FileHandler(Path(keep) / "clients.log") if keep else logging.NullHandler()
    logger = logging.getLogger("escrowmq")
    logger.addHandler(handler)

    def restore() -> None:
        logger.removeHandler(handler)
        handler.close()

    return restore


def _save_results(folder: Path, drill: Drill, report: DrillReport) -> None:
    import msgspec

    from escrowmq.drill.history import append_event

    with (folder / "final.jsonl").open("wb") as file:
        for event in drill.final:
            append_event(file, event)
    text = msgspec.json.format(msgspec.json.encode(report), indent=1)
    (folder / "report.json").write_bytes(text + b"\n")


async def _is_confirmed(broker: str) -> bool:
    if not sys.stdin.isatty():
        print_error_line("nothing was done. To do it: --yes")
        return False
    print_error_line(f"All clients of {broker} are concerned. To go on type its name:")
    answer = await asyncio.to_thread(sys.stdin.readline)
    if answer.strip() == broker:
        return True
    print_error_line("nothing was done")
    return False


# -- what is shown ---------------------------------------------------------------------------


def _print_plan(
    arguments: argparse.Namespace, ground: HealthyGroup, steps: list[FaultStep]
) -> None:
    seconds = sum(step.span_ms for step in steps) / 1000
    said = (
        f"{len(steps)} faults would be done to {ground.broker} (members "
        f"{', '.join(sorted(ground.members))}; master {ground.master}), one after another, each "
        f"when all members are in sync: {seconds:g} s of faults altogether, and the time to "
        f"recover. Clients would send {arguments.rate} messages and transactions a second to a "
        "topic of their own; the changes of the master concern everybody."
    )
    if ground.min_copies >= len(ground.members):
        said += (
            f" While a member is not in sync, messages are refused: escrowMinCopies="
            f"{ground.min_copies}, and there are {len(ground.members)} members."
        )
    rows = [
        {"fault": step.name, "what": f"the {step.at} {step.description}",
         "expected": step.expected_effect(ground.takeover_ms)}
        for step in steps
    ]  # fmt: skip
    if arguments.json:
        print_json({"isDryRun": True, "said": said, "count": len(rows), "rows": rows})
        return
    print_line(f"dry run: {said}" if arguments.dry_run else said)
    print_line("FAULT", "WHAT", "EXPECTED")
    for row in rows:
        print_line(row["fault"], row["what"], row["expected"])


_DATE_SIZE: Final = len("2026-01-01T")

_COLUMNS: Final = (
    "FAULT", "AT", "MEMBER", "MASTER", "EPOCH", "NO ACK FOR", "IN SYNC AFTER", "ACKNOWLEDGED",
    "ENDS", "LOST", "DOUBLED", "WRONGLY VISIBLE", "OFFSET TWICE", "OTHER",
)  # fmt: skip


def _print_report(report: DrillReport, *, is_json: bool) -> None:
    if is_json:
        print_json(report)
        return
    print_line(
        f"drill {report.drill} of {report.broker}: members {', '.join(report.members)}, "
        f"{report.rate} a second, {report.took_ms / 1000:.0f} s"
    )
    print_line(*_COLUMNS)
    for row in report.rows:
        print_line(*_row_cells(row))
    for row in report.rows:
        for note in row.notes:
            print_line(f"  ! {row.fault}: {note}")
    for note in report.notes:
        print_line(f"  ! {note}")
    for finding in report.findings:
        print_line(f"  ! {finding}")
    if report.findings_count > len(report.findings):
        print_line(f"  ! and {report.findings_count - len(report.findings)} more")
    for hint in report.hints:
        print_line(f"  left to do: {hint}")
    print_line(report.verdict)


def _row_cells(row: FaultRow) -> tuple[object, ...]:
    is_moved = row.master_after != row.master_before
    is_later = row.epoch_after != row.epoch_before
    in_sync = row.in_sync_after_ms
    return (
        row.fault, format_moment(row.at_ms)[_DATE_SIZE:], row.member or "-",
        f"{row.master_before} > {row.master_after or '?'}" if is_moved else row.master_before,
        f"{row.epoch_before} > {row.epoch_after}" if is_later else row.epoch_before,
        f"{row.longest_gap_ms / 1000:.2f} s", f"{in_sync / 1000:.1f} s" if in_sync >= 0 else "NOT",
        row.acknowledged, row.ends, row.lost, row.doubled, row.wrongly_visible, row.offsets_twice,
        row.other,
    )  # fmt: skip
