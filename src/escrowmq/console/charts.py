"""Draws curves as SVG. They have at most 120 points and no scripts or style attributes, which the
content-security policy forbids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup, escape

POINTS_MAX: Final = 120
_WIDTH: Final = 600
_HEIGHT: Final = 140
_SMALL: Final = (120, 28)
_PAD: Final = 2

Values = Sequence[float | None]


def reduce_values(values: Values, count: int = POINTS_MAX) -> list[float | None]:
    """Reduce values to at most `count`. Each group of neighbours is replaced by its greatest value,
    so that no peak is lost."""
    if len(values) <= count:
        return list(values)
    step = len(values) / count
    found: list[float | None] = []
    for nth in range(count):
        stretch = [v for v in values[int(nth * step) : int((nth + 1) * step)] if v is not None]
        found.append(max(stretch) if stretch else None)
    return found


def draw_small_curve(values: Values, label: str) -> Markup:
    """Draw a small curve for a table."""
    width, height = _SMALL
    return _draw_svg(
        values, label, kind="spark", width=width, height=height, top=_scale_top(values)
    )


def draw_curve(values: Values, label: str, *, unit: str = "", span: str = "") -> Markup:
    """Draw a curve, and write its greatest and its newest value."""
    known = [value for value in values if value is not None]
    top = _scale_top(values)
    drawn = _draw_svg(values, label, kind="chart", width=_WIDTH, height=_HEIGHT, top=top)
    newest = short_number(known[-1]) if known and values[-1] is not None else "unknown"
    return Markup(
        '<figure class="figure"><figcaption><span>{}</span>'
        "<strong>{}<small> {}</small></strong></figcaption>{}"
        '<p class="axis"><span>{}</span><span>peak {}</span></p></figure>'
    ).format(label, newest, unit, drawn, span, short_number(max(known)) if known else "unknown")


def short_number(value: float) -> str:
    """Format a number in few letters: 1234567 as 1.23 M."""
    for size, mark in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            scaled = value / (1e3 if mark == "k" else size)
            return f"{scaled:.3g} {mark}"
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.3g}"


def _scale_top(values: Values) -> float:
    return max((value for value in values if value is not None), default=0.0) or 1.0


def _draw_svg(
    values: Values, label: str, *, kind: str, width: int, height: int, top: float
) -> Markup:
    points = reduce_values(values)
    runs = _split_at_gaps(points, width=width, height=height, top=top)
    lines = Markup("").join(
        Markup('<polyline points="{}"/>').format(" ".join(f"{x:.1f},{y:.1f}" for x, y in run))
        for run in runs
    )
    areas = Markup("").join(
        Markup('<polygon points="{}"/>').format(
            " ".join(
                f"{x:.1f},{y:.1f}" for x, y in [(run[0][0], height), *run, (run[-1][0], height)]
            )
        )
        for run in runs
        if kind == "chart"
    )
    return Markup(
        '<svg class="{}" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
        'aria-label="{}">{}{}</svg>'
    ).format(kind, width, height, escape(label), areas, lines)


def _split_at_gaps(
    points: Sequence[float | None], *, width: int, height: int, top: float
) -> list[list[tuple[float, float]]]:
    """Convert values to points, and split them where a value is unknown, so that the curve has a
    gap there."""
    step = width / max(1, len(points) - 1)
    room = height - 2 * _PAD
    runs: list[list[tuple[float, float]]] = [[]]
    for nth, value in enumerate(points):
        if value is None:
            runs.append([])
            continue
        runs[-1].append((nth * step, _PAD + room * (1 - max(0.0, value) / top)))
    return [run if len(run) > 1 else [run[0], run[0]] for run in runs if run]
