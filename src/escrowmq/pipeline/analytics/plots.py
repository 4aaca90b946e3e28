"""Plots as SVG inside a page: lines and letters take the colour of the surrounding text, so they
are readable on a light and on a dark background."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from escrowmq.errors import UsageError

INK: Final = "#010203"
"""A placeholder colour, replaced by the page's own text colour."""

COLOURS: Final = ("#2f9e6e", "#d97b29", "#8f7cd6", "#c9506b", "#4a90c2", "#9a8a3c")
"""Colours of series: distinct from white and black, and from each other for the colour-blind."""

_SIZE: Final = (8.2, 2.7)
_LABELS_MAX: Final = 14
_DAYS_MIN: Final = 7


def draw_stacked_columns(
    days: Sequence[str], series: Mapping[str, Sequence[float]], *, unit: str
) -> str:
    """Draw a column per day, divided by series."""
    figure, axes = _figure()
    bottom = [0.0] * len(days)
    for colour, (name, values) in zip(COLOURS, series.items(), strict=False):
        axes.bar(
            _short_day_labels(days), values, bottom=bottom, width=0.7, color=colour, label=name
        )
        bottom = [low + value for low, value in zip(bottom, values, strict=True)]
    _limit_column_width(axes, days)
    return _figure_as_svg(figure, axes, unit=unit)


def draw_lines(
    days: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    *,
    unit: str,
    is_log: bool = False,
) -> str:
    """Draw a line per series; days without a value are left out."""
    figure, axes = _figure()
    for colour, (name, values) in zip(COLOURS, series.items(), strict=False):
        numbers = [float("nan") if value is None else value for value in values]
        axes.plot(
            _short_day_labels(days), numbers, marker="o", markersize=4, color=colour, label=name
        )
    if is_log and any(value and value > 0 for values in series.values() for value in values):
        axes.set_yscale("log")
    _limit_column_width(axes, days)
    return _figure_as_svg(figure, axes, unit=unit)


def draw_bars(names: Sequence[str], values: Sequence[float], *, unit: str) -> str:
    """Draw a bar per name."""
    figure, axes = _figure()
    axes.bar(names, values, width=0.6, color=COLOURS[1])
    return _figure_as_svg(figure, axes, unit=unit, has_legend=False)


def _limit_column_width(axes: Any, days: Sequence[str]) -> None:  # noqa: ANN401 - matplotlib's
    """Set the axis so that the columns of a few days are no wider than those of a week."""
    axes.set_xlim(-0.6, max(len(days), _DAYS_MIN) - 0.4)


def _short_day_labels(days: Sequence[str]) -> list[str]:
    """Shorten days to month and day, and drop some if they would not fit."""
    step = -(-len(days) // _LABELS_MAX)
    # matplotlib merges columns with equal labels, so hidden ones get different numbers of blanks.
    return [day[5:] if at % step == 0 else " " * at for at, day in enumerate(days)]


def _figure() -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(
            "reports need matplotlib; pip install matplotlib, or leave out --report"
        ) from error
    figure = Figure(figsize=_SIZE, layout="constrained")
    return figure, figure.add_subplot()


def _figure_as_svg(
    figure: Any,  # noqa: ANN401 - matplotlib's
    axes: Any,  # noqa: ANN401
    *,
    unit: str,
    has_legend: bool = True,
) -> str:
    axes.set_ylabel(unit, color=INK)
    axes.tick_params(which="both", colors=INK, labelsize=9)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    if axes.get_yscale() == "linear":
        axes.set_ylim(0, max(1.0, axes.get_ylim()[1]))
        axes.yaxis.get_major_locator().set_params(integer=True)
    axes.minorticks_off()
    axes.grid(axis="y", color=INK, alpha=0.12, linewidth=0.8)
    axes.set_axisbelow(True)
    for name, spine in axes.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(INK)
    if has_legend:
        axes.legend(
            frameon=False, labelcolor=INK, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0)
        )
    out = io.StringIO()
    # Text stays text, not outlines: the file is smaller, and searchable in the page.
    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "escrowmq"}):
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return _inline_svg(out.getvalue())


def _inline_svg(text: str) -> str:
    found = text[text.index("<svg") :].replace(INK, "currentColor")
    found = re.sub(r"font: ([^;\"]*?)px [^;\"]*", r"font-size: \1px", found)
    return re.sub(r'(<svg[^>]*?) width="[^"]*"| height="[^"]*pt"', r"\1", found, count=2)
