"""Writes the funnel's report: a single self-contained HTML file."""

from __future__ import annotations

import datetime as dt
import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from escrowmq.pipeline.analytics import plots
from escrowmq.pipeline.analytics.funnel import AGE_BANDS_S, PERCENTILES

if TYPE_CHECKING:
    from escrowmq.pipeline.analytics.job import FunnelJob

DAYS_MAX: Final = 31
"""Only this many days are drawn; the tables have all of them."""

TWICE_SHOWN_MAX: Final = 200
_SHARE_NAMES: Final = tuple(f"{share:.0%}" for share in PERCENTILES)
_FATES: Final = (
    ("committed", "committed"),
    ("rolledBack", "rolled back"),
    ("expired", "expired"),
    ("pending", "pending"),
    ("parked", "parked"),
)

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --ground: #fdfdfc; --ink: #1c2126 }
@media (prefers-color-scheme: dark) { :root { --ground: #15181c; --ink: #e4e6e8 } }
body { background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, sans-serif;
  margin: 0 auto; max-width: 62rem; padding: 2rem 1.2rem 4rem }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: 1.1rem; margin: 2.6rem 0 .3rem }
p { max-width: 46rem; opacity: .8; margin: .2rem 0 .8rem }
svg { width: 100%; height: auto; display: block } svg text { font-family: inherit }
.wide { overflow-x: auto } table { border-collapse: collapse; font-size: .87rem; width: 100% }
th, td { text-align: left; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--line);
  white-space: nowrap } th { font-weight: 600; opacity: .75 }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
summary { cursor: pointer; opacity: .8; margin: .4rem 0 } .sums { display: flex; flex-wrap: wrap;
  gap: .6rem 2rem; margin: 1.4rem 0 0 } .sums b { display: block; font-size: 1.5rem;
  font-weight: 600; font-variant-numeric: tabular-nums } .sums span { opacity: .75 }
"""


class ReportFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of the report, as rows of the job's tables."""

    made_at: dt.datetime
    funnel: Sequence[Any]
    stuck: Sequence[Any]
    twice: Sequence[Any] = ()
    given_back: Sequence[Any] = ()


def write_report(job: FunnelJob, path: str) -> None:
    """Write the report about a job's tables to a file."""
    figures = ReportFigures(
        made_at=job.reference_time(),
        funnel=job.funnel.read().orderBy("day", "topic", "producerGroup").collect(),
        stuck=job.open_halves_by_age().collect(),
        twice=job.duplicates.read().orderBy("firstAt").limit(TWICE_SHOWN_MAX).collect(),
        given_back=job.retries.read().orderBy("day", "consumerGroup", "topic").collect(),
    )
    Path(path).write_text(render_page(figures), encoding="utf-8")


def render_page(figures: ReportFigures) -> str:
    """Return the report as HTML."""
    parts = [
        f"<h1>Transactions</h1><p>As of {figures.made_at:%Y-%m-%d %H:%M} UTC.</p>",
        _sums(figures.funnel),
        *_funnel_parts(figures.funnel),
        *_time_parts(figures.funnel),
        *_open_halves_parts(figures.stuck),
        *_duplicates_parts(figures),
    ]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>Transactions</title>'
        f"<style>{_STYLE}</style>{''.join(parts)}</html>\n"
    )


def _sums(rows: Sequence[Any]) -> str:
    cells = [("started", sum(row["started"] for row in rows))]
    cells += [(name, sum(row[column] for row in rows)) for column, name in _FATES]
    tiles = "".join(f"<div><b>{count:,}</b><span>{name}</span></div>" for name, count in cells)
    return f'<div class="sums">{tiles}</div>'


def _funnel_parts(rows: Sequence[Any]) -> list[str]:
    days = sorted({str(row["day"]) for row in rows})[-DAYS_MAX:]
    series = {
        name: [sum(row[column] for row in rows if str(row["day"]) == day) for day in days]
        for column, name in _FATES
    }
    heads = ("day", "topic", "producer group", "started", *[name for _, name in _FATES],
             "asked about", "two finals")  # fmt: skip
    table = [
        (row["day"], row["topic"], row["producerGroup"], row["started"],
         *[row[column] for column, _ in _FATES], row["checked"], row["doubled"])
        for row in rows
    ]  # fmt: skip
    return [
        (
            "<h2>What became of them</h2><p>Each transaction counts on the day on which its half "
            "message was stored.</p>"
        ),
        plots.draw_stacked_columns(days, series, unit="transactions")
        if days
        else "<p>None yet.</p>",
        _table(heads, table, texts=3),
    ]


def _time_parts(rows: Sequence[Any]) -> list[str]:
    days = sorted({str(row["day"]) for row in rows if row["commitMs"]})[-DAYS_MAX:]
    slowest: dict[str, list[float | None]] = {
        name: [
            max(row["commitMs"][at] for row in rows if str(row["day"]) == day and row["commitMs"])
            for day in days
        ]
        for at, name in enumerate(_SHARE_NAMES)
    }
    heads = ("day", "topic", "producer group", *[f"commit {n}" for n in _SHARE_NAMES],
             *[f"whole {n}" for n in _SHARE_NAMES])  # fmt: skip
    table = [
        (row["day"], row["topic"], row["producerGroup"], *row["commitMs"], *row["wholeMs"])
        for row in rows
        if row["commitMs"] and row["wholeMs"]
    ]
    return [
        (
            "<h2>Time to commit</h2><p>So many of a day's commits took no longer. <i>Commit</i>: "
            "from the half message to the message, both by the broker's clock. <i>Whole</i>: from "
            "the birth of the message, by its producer's clock, which may be ahead. The plot has "
            "the slowest topic of each day. All in ms.</p>"
        ),
        plots.draw_lines(days, slowest, unit="ms", is_log=True) if days else "<p>None yet.</p>",
        _table(heads, table, texts=3),
    ]


def _open_halves_parts(rows: Sequence[Any]) -> list[str]:
    counts = [
        sum(row["count"] for row in rows if row["band"] == at) for at in range(len(AGE_BANDS_S))
    ]
    names = [name for name, _ in AGE_BANDS_S]
    table = [
        (row["topic"], row["producerGroup"], names[row["band"]], row["count"], row["oldestS"])
        for row in sorted(rows, key=lambda row: (-row["band"], row["topic"] or ""))
    ]
    heads = ("topic", "producer group", "open for", "count", "oldest, s")
    return [
        "<h2>Open transactions by age</h2>",
        plots.draw_bars(names, counts, unit="transactions") if rows else "<p>None is open.</p>",
        _table(heads, table, texts=3),
    ]


def _duplicates_parts(figures: ReportFigures) -> list[str]:
    parts = ["<h2>Delivered more than once</h2>"]
    twice = [
        (row["day"], row["topic"], row["messageId"], " ".join(row["places"]), row["count"])
        for row in figures.twice
    ]
    back = [
        (row["day"], row["consumerGroup"], row["topic"], row["deliveriesBefore"], row["count"])
        for row in figures.given_back
    ]
    if not (twice or back):
        return [*parts, "<p>Nothing.</p>"]
    if twice:
        parts.append("<p>Messages that stand in a topic more than once, by their unique key.</p>")
        heads = ("day", "topic", "message", "where", "times")
        parts.append(_table(heads, twice, texts=4))
    if back:
        parts.append("<p>Messages that consumers gave back.</p>")
        heads = ("day", "consumer group", "topic", "deliveries before", "messages")
        parts.append(_table(heads, back, texts=3))
    return parts


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]], *, texts: int) -> str:
    """Format the numbers of a plot as an HTML table. The first `texts` columns are text, the others
    numbers."""

    def line(cells: Sequence[Any], tag: str) -> str:
        return "".join(
            f"<{tag}{'' if at < texts else ' class=n'}>{_format_cell(cell)}</{tag}>"
            for at, cell in enumerate(cells)
        )

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    if not body:
        return ""
    return (
        '<details open><summary>Figures</summary><div class="wide"><table>'
        f"<tr>{line(heads, 'th')}</tr>{body}</table></div></details>"
    )


def _format_cell(cell: Any) -> str:  # noqa: ANN401 - whatever a row has
    if cell is None:
        return "–"
    return f"{cell:,}" if isinstance(cell, int) else html.escape(str(cell))
