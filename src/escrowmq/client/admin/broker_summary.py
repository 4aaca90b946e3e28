"""The metrics of a broker that people usually look for. All others are in `broker show --all` and
`--json`, under RocketMQ's names."""

from __future__ import annotations

from collections.abc import Mapping

from escrowmq.base.human_format import format_byte_count, format_moment, format_span


def summarize_metrics(found: Mapping[str, str], now_ms: int) -> list[tuple[str, str]]:
    """Return the title and value of each usual metric, as text with its unit. Metrics that the
    broker does not report are left out."""
    rows = [
        ("build", found.get("escrowVersion", "")),
        ("speaks", found.get("brokerVersionDesc", "")),
        ("up since", _format_time_and_age(found.get("bootTimestamp"), now_ms)),
        ("connections", found.get("escrowConnections", "")),
        ("accepts messages", _accepts_messages_text(found)),
        ("stored", _format_rates(found.get("putTps"))),
        ("handed out", _format_rates(found.get("getTransferredTps"))),
        ("log", _format_log_size(found)),
        ("oldest message", _format_time_and_age(found.get("earliestMessageTimeStamp"), now_ms)),
        ("disk", _format_disk_usage(found)),
        (
            "not durable yet",
            _format_size(found.get("remainHowManyDataToFlush", "").removesuffix(" B")),
        ),
        ("not visible yet", _format_size(found.get("dispatchBehindBytes"))),
    ]
    return [(title, value) for title, value in rows if value]


def _parse_number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() else None


def _format_size(text: str | None) -> str:
    count = _parse_number(text)
    return "" if count is None else format_byte_count(count)


def _format_time_and_age(text: str | None, now_ms: int) -> str:
    at_ms = _parse_number(text)
    return f"{format_moment(at_ms)} ({format_span(max(0, now_ms - at_ms))} ago)" if at_ms else ""


def _accepts_messages_text(found: Mapping[str, str]) -> str:
    if "escrowReadOnly" not in found:
        return ""
    return f"no: {found['escrowReadOnly']}" if found["escrowReadOnly"] else "yes"


def _format_rates(text: str | None) -> str:
    """Rates over the last 10 seconds, minute and 10 minutes."""
    words = (text or "").split()
    spans = ("10 s", "1 min", "10 min")
    if len(words) != len(spans):
        return ""
    try:
        rates = [f"{float(word):.1f}/s ({over})" for word, over in zip(words, spans, strict=True)]
    except ValueError:
        return ""
    return ", ".join(rates)


def _format_log_size(found: Mapping[str, str]) -> str:
    low, end = (
        _parse_number(found.get("commitLogMinOffset")),
        _parse_number(found.get("commitLogMaxOffset")),
    )
    return (
        "" if low is None or end is None else f"{format_byte_count(end - low)}, up to offset {end}"
    )


def _format_disk_usage(found: Mapping[str, str]) -> str:
    try:
        percent = f"{float(found['commitLogDiskRatio']):.0%} full"
    except (KeyError, ValueError):
        return ""
    capacity = found.get("commitLogDirCapacity", "").rstrip(".")
    return f"{percent} ({capacity})" if capacity else percent
