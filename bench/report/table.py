"""A figure, and how figures are shown.

Owns: what one measured number is, the tables for people and the JSON for machines. Refuses:
measuring.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

__all__ = ["Figure", "as_json", "markdown", "render"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number.

    value: the median where there were several runs; spread: the lowest and highest of them.
    goal None: measured to explain another figure, nothing is promised. `most`: the goal is the
    most it may be, otherwise the least. note: what limits it, or how it was measured. undecided: it
    differs too much between its runs to say whether the goal is met.

    Where several do the same: who did it, which series it belongs to (what one chart shows), what
    a token outlives once the call has returned, and the whole of that promise (`peers/peer.py`).
    """

    question: str
    name: str
    value: float
    unit: str
    goal: float | None = None
    most: bool = True
    spread: tuple[float, float] | None = None
    note: str = ""
    who: str = ""
    series: str = ""
    outlives: str = ""
    promise: str = ""
    undecided: bool = False

    @property
    def met(self) -> bool | None:
        """None where nothing is promised, or nothing can be said."""
        if self.goal is None or self.undecided:
            return None
        return self.value <= self.goal if self.most else self.value >= self.goal


_HEADINGS = ("figure", "measured", "lowest .. highest", "goal", "met")


def _number(value: float) -> str:
    if value != value:
        return "?"
    if abs(value) >= 100_000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _row(figure: Figure) -> tuple[str, str, str, str, str]:
    unit = f" {figure.unit}" if figure.unit else ""
    spread = ""
    if figure.spread is not None:
        spread = f"{_number(figure.spread[0])} .. {_number(figure.spread[1])}"
    goal = met = ""
    if figure.goal is not None:
        goal = f"{'<=' if figure.most else '>='} {_number(figure.goal)}{unit}"
        met = {True: "yes", False: "NO", None: "not decidable"}[figure.met]
    return figure.name, _number(figure.value) + unit, spread, goal, met


def render(figures: list[Figure]) -> str:
    """The table, one block a question, notes under each block."""
    rows = {id(figure): _row(figure) for figure in figures}
    widths = [max(map(len, column)) for column in zip(_HEADINGS, *rows.values(), strict=True)]

    def line(cells: tuple[str, ...]) -> str:
        return "  ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)).rstrip()

    lines = [line(_HEADINGS), line(tuple("-" * width for width in widths))]
    for question in dict.fromkeys(figure.question for figure in figures):
        own = [figure for figure in figures if figure.question == question]
        lines += ["", question]
        lines += [line(rows[id(figure)]) for figure in own]
        lines += [f"    {note}" for note in dict.fromkeys(f.note for f in own) if note]
    promised = [figure for figure in figures if figure.goal is not None]
    kept = sum(1 for figure in promised if figure.met)
    open_ones = sum(1 for figure in promised if figure.undecided)
    lines += ["", f"{kept} of {len(promised)} goals met"]
    if open_ones:
        lines[-1] += f", {open_ones} not decidable"
    return "\n".join(lines)


def markdown(figures: list[Figure]) -> str:
    """The same as Markdown."""
    rows = [_HEADINGS, tuple("---" for _ in _HEADINGS), *map(_row, figures)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def as_json(figures: list[Figure]) -> list[dict[str, object]]:
    """The same for a machine. null: a value too large for what measured it, inf in a Figure."""
    return [
        asdict(figure)
        | {"value": None if math.isinf(figure.value) else figure.value, "met": figure.met}
        for figure in figures
    ]
