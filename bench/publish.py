"""What the pages show of the bench, from a results file: `python -m bench.publish RESULTS.json`.

Owns: the Markdown of what stands beside walld, between two marks of RESULTS.md (every figure) and
of README.md (the charts, and what a token's call costs); the charts; and `published.json`, the
figures they were made of. A test compares them: no figure there is typed by hand. Refuses: choosing
which figures look well: a goal that is missed is shown as missed.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from bench.charts import charts, short

__all__ = ["CHARTS", "PAGES", "PUBLISHED", "QUESTIONS", "placed", "publish"]

_HERE = Path(__file__).parent
PUBLISHED = _HERE / "published.json"
CHARTS = _HERE / "charts"
QUESTIONS = ("peers", "ingest", "streaming")
_MARKS = re.compile(r"(<!-- bench: made by .*? -->\n).*?(<!-- bench: end -->)", re.S)


def _table(heading: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _ratio(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2g}" if value < 10 else f"{value:.3g}"


def _goals(figures: list[dict[str, Any]]) -> str:
    rows = []
    for one in figures:
        if one["goal"] is None:
            continue
        spread, unit = one["spread"], "" if one["unit"] in ("", "x") else f" {one['unit']}"
        rows.append([
            one["name"], _ratio(one["value"]) + unit,
            f"{_ratio(spread[0])} .. {_ratio(spread[1])}{unit}" if spread else "",
            f"{'at most' if one['most'] else 'at least'} {_ratio(one['goal'])}{unit}",
            {True: "met", False: "**not met**", None: "**not decidable**"}[one["met"]],
        ])  # fmt: skip
    return _table(["figure", "measured", "lowest .. highest", "goal", ""], rows)


def _costs(figures: list[dict[str, Any]], shares: tuple[str, ...]) -> str:
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
    return _table(["a token's call", *series, outlives], rows)


def _ingest(figures: list[dict[str, Any]]) -> str:
    cells = {(f["who"], f["series"]): short(f["value"], f["unit"]) for f in figures}
    series = ["events a second", "CPU an event"]
    rows = [
        [f["who"], *(cells[f["who"], one] for one in series), f["promise"]]
        for f in figures
        if f["series"] == series[0]
    ]
    return _table(["bulk, one core", *series, "promise"], rows)


def _streaming(figures: list[dict[str, Any]]) -> list[str]:
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
        _table([kind, "with walld", "without", *more.get(kind, ())], these)
        for kind, these in rows.items()
    ]


def _where(report: dict[str, Any]) -> str:
    machine = report["machine"]
    at = time.strftime("%Y-%m-%d", time.strptime(report["at"], "%Y%m%dT%H%M%SZ"))
    versions = ", ".join(f"{name} {number}" for name, number in report["peers"].items())
    return (
        f"One run of {at} at commit `{report['commit']}`: {machine['cores']} cores of "
        f"{machine['cpu'] or 'an unnamed CPU'}, kernel {machine['kernel'].split('-')[0]}, "
        f"{machine['filesystem']}, {machine['python']}, load {machine['load'][0]:.1f} at its start "
        f"and {machine['load_after'][0]:.1f} at its end. {versions}."
    )


def _by_question(report: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    return {q: [f for f in report["figures"] if f["question"] == q] for q in QUESTIONS}


def _every_figure(report: dict[str, Any]) -> str:
    """Of those of the three questions that the report answers."""
    by = _by_question(report)
    parts = [_where(report), _goals([f for q in QUESTIONS for f in by[q]])]
    if by["peers"]:
        parts.append(_costs(by["peers"], ("p50", "p99", "p99.9")))
        parts += dict.fromkeys(f"{f['note']}." for f in by["peers"] if f["note"])
    if by["ingest"]:
        parts.append(_ingest(by["ingest"]))
    if by["streaming"]:
        parts += _streaming(by["streaming"])
    return "\n\n".join(parts) + "\n"


def _at_a_glance(report: dict[str, Any]) -> str:
    """What a token's call costs, and the charts."""
    costs = _by_question(report)["peers"]
    parts = [_where(report)]
    if costs:
        parts.append(_costs(costs, ("p50",)))
    parts += (f"![{_title(svg)}](bench/charts/{name})" for name, svg in charts(report).items())
    return "\n\n".join(parts) + "\n"


PAGES = {_HERE / "RESULTS.md": _every_figure, _HERE.parent / "README.md": _at_a_glance}
"""Each page that shows figures, and what makes its Markdown of a report."""


def _title(svg: str) -> str:
    found = re.search('aria-label="(.*?)"', svg)
    return found[1] if found else ""


def placed(page: str, markdown: str) -> str:
    """The page with that between its marks. ValueError where it has none."""
    made, count = _MARKS.subn(lambda found: f"{found[1]}\n{markdown}\n{found[2]}", page)
    if count != 1:
        raise ValueError(f"a page has {count} places between the marks of bench, wanted 1")
    return made


def publish(report: dict[str, Any]) -> None:
    """The pages, charts and published.json, of the three questions.

    ValueError where the report is a quick one or has not all three: the pages would lose what they
    show of the others.
    """
    missing = [question for question, figures in _by_question(report).items() if not figures]
    if report["quick"] or missing:
        why = "is of a quick run" if report["quick"] else f"has nothing of {', '.join(missing)}"
        raise ValueError(f"not published: the report {why}")
    kept = [figure for figure in report["figures"] if figure["question"] in QUESTIONS]
    report = report | {"figures": kept}
    for page, shown in PAGES.items():
        page.write_text(placed(page.read_text(), shown(report)))
    PUBLISHED.write_text(json.dumps(report, indent=1) + "\n")
    CHARTS.mkdir(exist_ok=True)
    for name, text in charts(report).items():
        (CHARTS / name).write_text(text)


if __name__ == "__main__":
    try:
        publish(json.loads(Path(sys.argv[1]).read_text()))
    except ValueError as error:
        sys.exit(f"bench: {error}")
