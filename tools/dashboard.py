"""Writes deploy/grafana/escrowmq.json, the dashboard, from the table below. A test compares the
file with what this writes, and its metrics with those that a broker exports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
FILE: Final = ROOT / "deploy" / "grafana" / "escrowmq.json"
_SOURCE: Final = {"type": "prometheus", "uid": "${source}"}
_OF: Final = '{node_id=~"$broker"}'
_COLUMNS: Final = 24
_DEAD: Final = "rocketmq_send_to_dlq_messages_total"


class Panel(NamedTuple):
    """A title, its queries with legends, and the unit of its axis."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    about: str = ""
    width: int = 8
    kind: str = "timeseries"


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{_OF}[$__rate_interval]))"


def _quantile(metric: str, share: float) -> str:
    rates = f"rate({metric}_bucket{_OF}[$__rate_interval])"
    return f"histogram_quantile({share}, sum by (node_id, le) ({rates}))"


def _grown(metric: str) -> str:
    """Within an hour, whichever process exported it."""
    most = f"max by (node_id) (max_over_time({metric}{_OF}[1h]))"
    return f"{most} - min by (node_id) (min_over_time({metric}{_OF}[1h]))"


def _top(how: str, metric: str) -> tuple[str, str]:
    by_reader = f"{how} by (consumer_group, topic) ({metric}{_OF})"
    return f"topk(10, {by_reader})", "{{consumer_group}} {{topic}}"


def _stat(title: str, expression: str, unit: str = "short") -> Panel:
    return Panel(title, ((expression, ""),), unit, width=4, kind="stat")


_ROWS: Final[dict[str, tuple[Panel, ...]]] = {
    "At a glance": (
        _stat("Pending transactions", f"sum(rocketmq_half_messages{_OF})"),
        _stat("Oldest pending", f"max(escrowmq_oldest_pending_seconds{_OF})", "s"),
        _stat("Producers unreachable", f"sum(escrowmq_parked_messages{_OF}) or vector(0)"),
        _stat("Consumer lag", f"sum(rocketmq_consumer_lag_messages{_OF}) or vector(0)"),
        _stat("Brokers read-only", f"sum(escrowmq_read_only{_OF})"),
        _stat("Fullest disk", f"max(escrowmq_disk_used_percent{_OF})", "percent"),
    ),
    "Transactions": (
        Panel(
            "Transactions settled per second",
            (
                (_rate("rocketmq_commit_messages_total", "node_id"), "{{node_id}} commit"),
                (_rate("rocketmq_rollback_messages_total", "node_id"), "{{node_id}} rollback"),
                (_rate("escrowmq_discarded_messages_total", "node_id"), "{{node_id}} discarded"),
            ),
            "ops",
        ),
        Panel(
            "Pending by age",
            ((f"sum by (seconds) (escrowmq_pending_older_than{_OF})", "older than {{seconds}} s"),),
            about="A transaction older than a few checks has a producer that does not know.",
        ),
        Panel("Pending by topic", ((f"topk(10, rocketmq_half_messages{_OF} > 0)", "{{topic}}"),)),
        Panel(
            "Checks per second",
            (
                (_rate("escrowmq_checks_sent_total", "node_id"), "{{node_id}} sent"),
                (_rate("escrowmq_checks_answered_total", "node_id"), "{{node_id}} answered"),
                (_rate("escrowmq_checks_unknown_total", "node_id"), "{{node_id}} unknown"),
                (_rate("escrowmq_checks_expired_total", "node_id"), "{{node_id}} unanswered"),
            ),
            "ops",
        ),
        Panel(
            "Groups without a reachable producer",
            ((f"sum by (group) (escrowmq_parked_messages{_OF})", "{{group}}"),),
        ),
        Panel(
            "ENDs after the outcome was decided",
            (
                (_rate("escrowmq_contradictory_ends_total", "node_id"), "{{node_id}} contradict"),
                (_rate("escrowmq_repeated_ends_total", "node_id"), "{{node_id}} repeat"),
            ),
            "ops",
        ),
    ),
    "Messages and consumers": (
        Panel(
            "Messages per second",
            (
                (_rate("rocketmq_messages_in_total", "node_id"), "{{node_id}} in"),
                (_rate("rocketmq_messages_out_total", "node_id"), "{{node_id}} out"),
            ),
            "ops",
        ),
        Panel(
            "Lag in messages",
            (_top("sum", "rocketmq_consumer_lag_messages"),),
        ),
        Panel(
            "Lag in time",
            (_top("max", "rocketmq_consumer_lag_latency_milliseconds"),),
            "ms",
        ),
        Panel(
            "In flight",
            (_top("sum", "rocketmq_consumer_inflight_messages"),),
        ),
        Panel(
            "Dead letters per hour",
            ((f"sum by (consumer_group) (increase({_DEAD}{_OF}[1h]))", "{{consumer_group}}"),),
        ),
        Panel(
            "Delayed messages waiting",
            ((f"sum by (level) (escrowmq_delayed_messages{_OF})", "{{level}}"),),
        ),
    ),
    "Replicas": (
        Panel(
            "In sync",
            (
                (f"escrowmq_members_in_sync{_OF} > 0", "{{node_id}} members"),
                (f"escrowmq_slaves_in_sync{_OF}", "{{node_id}} slaves"),
            ),
            about="Of a group: its master too. With fewer than escrowMinCopies it takes no "
            "messages.",
        ),
        Panel(
            "Bytes that copies lack",
            (
                (f"escrowmq_member_behind_bytes{_OF}", "{{node_id}} {{member}}"),
                (f"escrowmq_slave_behind_bytes{_OF}", "{{node_id}} {{slave}}"),
            ),
            "bytes",
        ),
        Panel(
            "Changes of the master per hour",
            ((_grown("escrowmq_epoch"), "{{node_id}}"),),
        ),
    ),
    "Broker": (
        Panel(
            "Requests refused per second",
            (
                (_rate("escrowmq_shed_requests_total", "node_id"), "{{node_id}} under load"),
                (_rate("escrowmq_limited_requests_total", "node_id"), "{{node_id}} over a limit"),
                (_rate("escrowmq_denied_requests_total", "node_id"), "{{node_id}} without right"),
            ),
            "ops",
        ),
        Panel(
            "Turn of the event loop",
            (
                (_quantile("escrowmq_turn_seconds", 0.99), "{{node_id}} p99"),
                (f"escrowmq_turn_longest_seconds{_OF}", "{{node_id}} longest"),
            ),
            "s",
        ),
        Panel(
            "Sync of the disk",
            (
                (_quantile("escrowmq_sync_seconds", 0.5), "{{node_id}} p50"),
                (_quantile("escrowmq_sync_seconds", 0.99), "{{node_id}} p99"),
            ),
            "s",
        ),
        Panel(
            "Not durable, not visible",
            (
                (f"rocketmq_storage_flush_behind_bytes{_OF}", "{{node_id}} not durable"),
                (f"rocketmq_storage_dispatch_behind_bytes{_OF}", "{{node_id}} not visible"),
            ),
            "bytes",
        ),
        Panel("Disk", ((f"escrowmq_disk_used_percent{_OF}", "{{node_id}}"),), "percent"),
        Panel("Connections", ((f"escrowmq_connections{_OF}", "{{node_id}}"),)),
    ),
}


def dashboard() -> dict[str, Any]:
    """All of it, as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in _ROWS.items():
        place = {"x": 0, "y": y, "w": _COLUMNS, "h": 1}
        panels.append({"type": "row", "title": title, "gridPos": place, "collapsed": False})
        x, y = 0, y + 1
        height = 4 if row[0].kind == "stat" else 8
        for panel in row:
            if x + panel.width > _COLUMNS:
                x, y = 0, y + height
            place = {"x": x, "y": y, "w": panel.width, "h": height}
            panels.append(_panel(panel, place))
            x += panel.width
        y += height
    for number, panel_of in enumerate(panels, 1):
        panel_of["id"] = number
    return {
        "title": "EscrowMQ", "uid": "escrowmq", "schemaVersion": 39, "version": 1,
        "editable": True, "refresh": "30s", "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_source(), _brokers()]}, "panels": panels,
    }  # fmt: skip


def _panel(panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + nth), "expr": expression, "legendFormat": legend or "__auto"}
        for nth, (expression, legend) in enumerate(panel.queries)
    ]
    return {
        "type": panel.kind, "title": panel.title, "description": panel.about, "gridPos": place,
        "datasource": _SOURCE, "targets": [{**one, "datasource": _SOURCE} for one in targets],
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
    }  # fmt: skip


def _source() -> dict[str, Any]:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _brokers() -> dict[str, Any]:
    query = "label_values(escrowmq_read_only, node_id)"
    return {
        "name": "broker", "label": "Broker", "type": "query", "datasource": _SOURCE, "query": query,
        "refresh": 2, "includeAll": True, "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }  # fmt: skip


def text() -> str:
    """The file's content."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
