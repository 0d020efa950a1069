"""The page of results: what the questions asked, which goals were met, what limits the others.

Owns: the part of RESULTS.md that is made of a report; the words about limits are rows of
`docs/data/bench_limits.csv`. Refuses: each figure, which `published.json` and `pages.py` have.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, Final

from bench.questions import QUESTIONS
from bench.report.charts import charts, short
from bench.report.pages import asked, by_question, counted, in_table, module, title, where

__all__ = ["LIMITS", "limits", "totals"]

LIMITS: Final = Path(__file__).parents[2] / "docs/data/bench_limits.csv"
_CHART: Final = "slow-disks.svg"
"""The README does not show it."""


def limits() -> dict[str, str]:
    """Question -> what limits it, in short: the first of its rows that says so."""
    with LIMITS.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    said = {row["question"].split()[0]: row["in short"] for row in rows if row["in short"]}
    return {question: said[question] for question in QUESTIONS if question in said}


def totals(report: dict[str, Any]) -> str:
    """What was asked and how much of it was met, then what was not met."""
    by = by_question(report)
    promised = {q: [one for one in by[q] if one["goal"] is not None] for q in by}
    parts = [
        where(report),
        counted([one for ones in promised.values() for one in ones]),
        "## Questions",
        in_table(
            ["question", "", "figures", "goals", "met", "not decidable"],
            [
                [f"[`{q}`]({module(q)})", asked(q), str(len(by[q])), *_counts(promised[q])]
                for q in by
            ],
        ),
        "## Goals that are not met",
        in_table(
            ["question", "not met", "the farthest from its goal", "what limits it"],
            [_missed(q, ones) for q, ones in promised.items() if _not_met(ones)],
        ),
    ]
    drawings = charts(report)
    if _CHART in drawings:
        parts.append(f"![{title(drawings[_CHART])}](charts/{_CHART})")
    return "\n\n".join(parts) + "\n"


def _counts(promised: list[dict[str, Any]]) -> list[str]:
    """Goals, those that are met, those that are not decidable."""
    met = [one["met"] for one in promised]
    return [str(len(met)), str(met.count(True)), str(met.count(None))]


def _not_met(promised: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in promised if one["met"] is False]


def _missed(question: str, promised: list[dict[str, Any]]) -> list[str]:
    missed = _not_met(promised)
    one = max(missed, key=_distance)
    unit = "" if one["unit"] == "x" else one["unit"]
    wanted = f"{'at most' if one['most'] else 'at least'} {short(one['goal'], unit)}"
    far = f"{one['name']}: {short(one['value'], unit)}, {wanted}"
    return [f"`{question}`", str(len(missed)), far, limits().get(question, "")]


def _distance(one: dict[str, Any]) -> float:
    """How many times its goal; None is beyond what could be measured."""
    if one["value"] is None:
        return float("inf")
    top, bottom = sorted((one["value"], one["goal"]), reverse=True)
    return float("inf") if bottom == 0 else top / bottom
