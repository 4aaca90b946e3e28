"""What docs call the figures is what they are called: an alert on another name never rings."""

from __future__ import annotations

import re
from pathlib import Path

from tests.harness.exchange import Exchange
from tests.harness.group import GroupWorld
from tests.harness.pair import Pair

from escrowmq.base.measure import MetricFamily
from escrowmq.base.nameserver_settings import NameServerSettings
from escrowmq.net.loop_turns import sync_lengths, turn_lengths
from escrowmq.registry.core import RegistryCore

DOCS = Path(__file__).resolve().parents[3] / "docs"
NO_FIGURES = {"escrowmq_broker", "escrowmq_server", "escrowmq_worker"}
"""Names of other things: of functions, fixtures and workers."""
OF_THE_PORT = {"escrowmq_build"}
TABLES = {"escrowmq_kept", "escrowmq_markers"}


def exported(families: list[MetricFamily]) -> set[str]:
    """As Prometheus sees them: counters end in `_total` (test_metrics_port)."""
    return {
        f"{family.name}_total" if family.kind == "counter" else family.name for family in families
    }


def test_every_figure_that_docs_name_is_exported() -> None:
    pair = Pair()
    names = RegistryCore(NameServerSettings(), started_ms=0)
    master, slave = (node.core.measure(node.now_ms) for node in (pair.master, pair.slave))
    spans = [*turn_lengths().metric_families(), *sync_lengths().metric_families()]
    group = GroupWorld(1)
    group.start_all()
    group.until(group.are_in_sync)
    brokers = [one.broker for one in group.hosts.values() if one.broker is not None]
    members = [each for one in brokers for each in one.core.measure(one.now_ms)]
    found = exported([*master, *slave, *members, *names.measure(), *spans])
    pages = [path for path in sorted(DOCS.glob("*.md")) if path.name != "changes.md"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in pages)
    told = set(re.findall(r"`((?:escrowmq|rocketmq)_[a-z_]*[a-z])[`{]", text))
    assert len(told) > 10
    assert told - NO_FIGURES - TABLES <= found | OF_THE_PORT


def test_the_table_of_figures_with_rocketmq_s_names_is_right() -> None:
    exchange = Exchange()
    found = exported(exchange.core.measure(exchange.now_ms))
    text = (DOCS / "operating.md").read_text(encoding="utf-8")
    _, _, rest = text.partition("| metric `rocketmq_...` | about |\n|---|---|\n")
    rows, _, _ = rest.partition("\n\n")
    told = {
        name for row in rows.splitlines() for name in re.findall("`([a-z_]+)`", row.split("|")[1])
    }
    assert len(told) > 15
    assert {f"rocketmq_{name}" for name in told} <= found


def test_what_docs_say_of_the_name_server_is_right() -> None:
    found = exported(RegistryCore(NameServerSettings(), started_ms=0).measure())
    text = (DOCS / "operating.md").read_text(encoding="utf-8")
    _, _, rest = text.partition("A name server has metrics too:")
    told = set(re.findall("`(_[a-z_]+)`", rest.partition("\n\n")[0]))
    assert len(told) > 5
    assert {f"escrowmq_nameserver{name}" for name in told} <= found


def test_what_only_grows_is_a_counter() -> None:
    exchange = Exchange()
    names = RegistryCore(NameServerSettings(), started_ms=0)
    families = [*exchange.core.measure(exchange.now_ms), *names.measure()]
    grows = ("failed", "deleted", "discarded", "denied", "expired", "answered", "sent", "refused")
    wrong = [
        family.name
        for family in families
        if any(word in family.name.split("_") for word in grows) and family.kind != "counter"
    ]
    assert wrong == []
