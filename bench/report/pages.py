"""What a report shows, as Markdown: `python -m bench.report.pages REPORT.json` prints all of it.

Owns: every figure of a report (each goal, then each question with its figures and notes), the part
of docs/performance.md (what a token's call costs, and the charts) and that of README.md (a token
with walld and without). A report shows what it has. Refuses: choosing which figures look well: a
goal that is missed is shown as missed; the page of results (`totals.py`); writing (`publish.py`).
"""

from __future__ import annotations

import ast
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from bench.questions import QUESTIONS
from bench.report.charts import charts, short

__all__ = [
    "asked",
    "at_a_glance",
    "by_question",
    "counted",
    "every_figure",
    "in_table",
    "module",
    "title",
    "what_a_token_costs",
    "where",
]

_Figures = list[dict[str, Any]]
_BENCH = Path(__file__).parents[1]
_AT_A_GLANCE = ("token-paced.svg", "token-flat-out.svg", "ingest.svg", "streaming.svg")
_IN_README = ("walld", "bare send", "walld, waiting for synced")
"""The calls of a token that the README shows."""
_OWN = ("peers", "ingest", "streaming")
"""Questions whose figures of a series stand in tables of their own."""
_MEASURED = ("figure", "measured", "lowest .. highest", "goal", "")


def every_figure(report: dict[str, Any]) -> str:
    """The goals of all questions, then the questions."""
    by = by_question(report)
    promised = [one for figures in by.values() for one in figures if one["goal"] is not None]
    rows = [[f"[{one['question']}](#{one['question']})", *_measured(one)] for one in promised]
    parts = [
        "## Goals",
        where(report),
        counted(promised),
        in_table(["question", *_MEASURED], rows),
        "## Question by question",
    ]
    for question in by:
        how = f"How: `{module(question)}`."
        parts += [f"### {question}", f"{asked(question)} {how}", *_answered(question, by)]
    return "\n\n".join(parts) + "\n"


def at_a_glance(report: dict[str, Any]) -> str:
    """What a token's call costs, and the charts."""
    costs = by_question(report).get("peers", [])
    parts = [where(report)]
    if costs:
        parts.append(_costs(costs, ("p50",)))
    drawings = charts(report)
    shown = [name for name in _AT_A_GLANCE if name in drawings]
    parts += (f"![{title(drawings[name])}](../bench/charts/{name})" for name in shown)
    return "\n\n".join(parts) + "\n"


def what_a_token_costs(report: dict[str, Any]) -> str:
    """The medians of walld and of a bare send, and of what waits for the disk."""
    costs = by_question(report).get("peers", [])
    cells = {(f["who"], f["series"]): short(f["value"], f["unit"]) for f in costs}
    paces = ("p50, 60/s", "p50, flat out")
    rows = [[who, *(cells.get((who, pace), "") for pace in paces)] for who in _IN_README]
    return in_table(["a token's call", *paces], rows) + "\n"


def by_question(report: dict[str, Any]) -> dict[str, _Figures]:
    """Of the questions that it answers."""
    by: dict[str, _Figures] = {q: [] for q in QUESTIONS}
    for figure in report["figures"]:
        by[figure["question"]].append(figure)
    return {question: figures for question, figures in by.items() if figures}


def where(report: dict[str, Any]) -> str:
    """When, at which commit, on which machine, beside which versions."""
    machine = report["machine"]
    at = time.strftime("%Y-%m-%d", time.strptime(report["at"], "%Y%m%dT%H%M%SZ"))
    versions = ", ".join(f"{name} {number}" for name, number in report["peers"].items())
    return (
        f"One run of {at} at commit `{report['commit']}`: {machine['cores']} cores of "
        f"{machine['cpu'] or 'an unnamed CPU'}, kernel {machine['kernel'].split('-')[0]}, "
        f"{machine['filesystem']}, {machine['python']}, load {machine['load'][0]:.1f} at its start "
        f"and {machine['load_after'][0]:.1f} at its end. {versions}."
    )


def counted(promised: _Figures) -> str:
    """How many goals are met, in a sentence."""
    met = sum(one["met"] is True for one in promised)
    open_ones = sum(one["met"] is None for one in promised)
    return f"{met} of {len(promised)} goals met, {open_ones} not decidable."


def asked(question: str) -> str:
    """The first words of its module."""
    says = ast.get_docstring(ast.parse((_BENCH / module(question)).read_text())) or ""
    return " ".join(says.partition("\n\n")[0].split())


def module(question: str) -> Path:
    """Below bench/."""
    path = _BENCH.parent / (QUESTIONS[question].module.replace(".", "/") + ".py")
    path = path if path.exists() else path.with_suffix("") / "__init__.py"
    return path.relative_to(_BENCH)


def _answered(question: str, by: dict[str, _Figures]) -> list[str]:
    """The tables, and the notes. What a table of the question's own shows is not shown again."""
    figures = by[question]
    left = figures if question not in _OWN else [one for one in figures if not one["series"]]
    made: list[str] = []
    if question == "peers":
        made = [_costs(figures, ("p50", "p99", "p99.9"))]
    elif question == "ingest":
        made = [_ingest(figures)]
    elif question == "streaming":
        made = _streaming(figures)
    elif question == "ladders":
        made, left = [_walls(by)], [one for one in figures if one["who"]]
    if left:
        made.append(in_table(list(_MEASURED), [_measured(one) for one in left]))
    noted = left if question == "ladders" else figures
    if notes := dict.fromkeys(one["note"] for one in noted if one["note"]):
        made.append("\n".join(f"- {note}" for note in notes))
    return made


# --- tables -------------------------------------------------------------------------------------


def in_table(heading: list[str], rows: list[list[str]]) -> str:
    """As a table of Markdown."""
    lines = ["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _measured(one: dict[str, Any]) -> list[str]:
    unit = "" if one["unit"] == "x" else one["unit"]
    goal = met = ""
    if one["goal"] is not None:
        goal = f"{'at most' if one['most'] else 'at least'} {short(one['goal'], unit)}"
        met = {True: "met", False: "**not met**", None: "**not decidable**"}[one["met"]]
    return [one["name"], short(one["value"], unit), _within(one["spread"], unit), goal, met]


def _within(spread: list[float] | None, unit: str) -> str:
    """The unit once, where both have it."""
    if spread is None:
        return ""
    low, high = (short(value, unit) for value in spread)
    (number, _, low_unit), (_, _, high_unit) = low.partition(" "), high.partition(" ")
    return f"{number if low_unit == high_unit else low} .. {high}"


def _costs(figures: _Figures, shares: tuple[str, ...]) -> str:
    cells = {(f["who"], f["series"]): short(f["value"], f["unit"]) for f in figures}
    series = [
        one
        for one in (f"{share}, {pace}" for pace in ("60/s", "flat out") for share in shares)
        if any(of == one for _, of in cells)
    ]
    rows = [
        [
            f["who"],
            *(cells.get((f["who"], one), "") for one in series),
            f"{f['outlives']}: {f['promise']}",
        ]
        for f in figures
        if f["series"] == "p50, 60/s"
    ]
    outlives = "when it has returned, the token outlives"
    return in_table(["a token's call", *series, outlives], rows)


def _ingest(figures: _Figures) -> str:
    cells = {(f["who"], f["series"]): short(f["value"], f["unit"]) for f in figures}
    series = ["events a second", "CPU an event"]
    rows = [
        [f["who"], *(cells[f["who"], one] for one in series), f["promise"]]
        for f in figures
        if f["series"] == series[0]
    ]
    return in_table(["bulk, one core", *series, "promise"], rows)


def _streaming(figures: _Figures) -> list[str]:
    """A table for how late a token is, and one for what a reader sees."""
    cells = {(f["who"], f["series"]): f for f in figures if f["series"]}
    judged = {f["name"]: f for f in figures}
    rows: dict[str, list[list[str]]] = {}
    for series in dict.fromkeys(f["series"] for f in figures if f["series"]):
        kind, pace = series.split(", ", 1)
        on, off = cells["with walld", series], cells["without", series]
        row = [pace, *(short(one["value"], one["unit"]) for one in (on, off))]
        if kind == "sent to recorded":
            later = judged[f"later with walld, {pace}"]
            low, high = later["spread"]
            row += [f"{later['value']:+.1f} us", f"{low:+.1f} .. {high:+.1f} us"]
        rows.setdefault(kind, []).append(row)
    more = {"sent to recorded": ["later by, in pairs of blocks", "or as well by"]}
    return [
        in_table([kind, "with walld", "without", *more.get(kind, ())], these)
        for kind, these in rows.items()
    ]


def _walls(by: dict[str, _Figures]) -> str:
    """What the kernel alone takes, and how far walld is from it."""
    heading = ["who waits for what", "the kernel alone", "walld", "walld to it",
               "lowest .. highest", "what the gap is made of, the largest first"]  # fmt: skip
    return in_table(heading, [*_ladders(by["ladders"]), *_other_walls(by)])


def _ladders(figures: _Figures) -> list[list[str]]:
    rows = []
    for series in dict.fromkeys(one["series"] for one in figures):
        *rungs, ratio = (one for one in figures if one["series"] == series)
        ends = (rungs[0], rungs[-1])
        first, last = (f"{of['who']}, {short(of['value'], of['unit'])}" for of in ends)
        causes = ratio["note"].removeprefix(f"{series}: ")
        rows.append([series, first, last, *_measured(ratio)[1:3], causes])
    return rows


def _other_walls(by: dict[str, _Figures]) -> list[list[str]]:
    """Of what other questions hold walld against. Their ratios are the other way round."""
    named = {one["name"]: one for figures in by.values() for one in figures}
    rows = []
    for own, how in (("walld", "a frame a token"), ("walld's backlog", "from a client's backlog")):
        ratio = named.get(f"{own} to recv + write, bytes a second of CPU")
        cost = named.get(f"{own}, CPU an event")
        if ratio and cost:
            least = short(cost["value"] * ratio["value"], "us")
            alone = f"`recv` and `write` of as many bytes, {least}"
            rows.append([f"bulk ingest, CPU an event, {how}", alone, short(cost["value"], "us"),
                         *_turned(ratio, 1), ""])  # fmt: skip
    for name, ratio in named.items():
        found = re.fullmatch(r"((\d+) submitters, sync \+.*): throughput to .*", name)
        if found is None:
            continue
        who, count = found[1], int(found[2])
        rate = named[f"{who}: throughput"]["value"]
        alone = f"one sync for all, {short(rate / ratio['value'] * count, '/s')}"
        rows.append([f"durable submits, {who}", alone, short(rate, "/s"),
                     *_turned(ratio, count), ""])  # fmt: skip
    return rows


def _turned(ratio: dict[str, Any], most: float) -> list[str]:
    spread = [most / value for value in reversed(ratio["spread"])] if ratio["spread"] else None
    return [short(most / ratio["value"], ""), _within(spread, "")]


def title(svg: str) -> str:
    """What a chart says that it shows."""
    found = re.search('aria-label="(.*?)"', svg)
    return found[1] if found else ""


if __name__ == "__main__":
    print(every_figure(json.loads(Path(sys.argv[1]).read_text())))
