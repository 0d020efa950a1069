"""Charts of a results file, as SVG: `python -m bench.report.charts RESULTS.json FOLDER`.

Owns: what is drawn, and drawing it: text and rectangles, no library. Colours follow the reader's
light or dark. Every bar has its value and its promise beside it, so nothing is told by colour
alone. A scale is logarithmic where the largest bar is more than twenty times the smallest, and the
chart says so. Refuses: measuring, and rounding what is compared.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

__all__ = ["Bar", "charts", "drawn", "short"]

Width = Callable[[float], float]
"""Pixels of a value."""
_WIDTH = 880
_BAR_AT, _BAR_WIDTH = 288, 342
"""Left of it there is room for the longest name, in the widest font that stands in for another."""
_ROW, _ROW_PLAIN, _GROUP = 42, 26, 30
_LOG_FROM = 20.0
_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.halo { fill: #ffffff; stroke: #ffffff; stroke-width: 4px; }
.title { font-size: 16px; font-weight: 600; }
.group { font-weight: 600; }
.small { font-size: 11px; fill: #59636e; }
.bar { fill: #8c959f; }
.own { fill: #0969da; }
.axis { stroke: #d1d9e0; }
.reach { stroke: #59636e; }
.page { fill: #ffffff; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; }
  .halo { fill: #0d1117; stroke: #0d1117; }
  .small { fill: #9198a1; }
  .bar { fill: #656c76; }
  .own { fill: #4493f8; }
  .axis { stroke: #3d444d; }
  .reach { stroke: #9198a1; }
  .page { fill: #0d1117; }
}"""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar. group: bars of one group follow each other under its heading. reach: a second value,
    drawn as a line from the bar's end. shown: the value in words. own: it is walld's."""

    label: str
    value: float
    shown: str
    group: str = ""
    promise: str = ""
    reach: float = 0.0
    own: bool = False


def short(value: float | None, unit: str) -> str:
    """Three digits, in the unit that makes them so: 54 us, 1.23 ms, 1.45 million events/s.

    None: it was too large for what measured it.
    """
    if value is None:
        return "beyond the last one"
    if unit == "us" and value >= 1000:
        value, unit = value / 1000, "ms"
    if unit == "us" and 0 < value < 1:
        value, unit = value * 1000, "ns"
    if value >= 1e6:
        return f"{value / 1e6:.3g} million {unit}".rstrip()
    digits = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{digits} {unit}".rstrip()


def _scale(bars: list[Bar]) -> tuple[bool, float, float]:
    """(logarithmic, value at the left, value at the right)."""
    values = [one for bar in bars for one in (bar.value, bar.reach) if one > 0]
    if max(values) <= _LOG_FROM * min(values):
        return False, 0.0, max(values)
    return True, 10 ** math.floor(math.log10(min(values))), max(values)


def drawn(title: str, says: str, bars: list[Bar], unit: str = "") -> str:
    """The chart. says: what is measured, and how to read a bar. unit: of the values."""
    logarithmic, left, right = _scale(bars)

    def width(value: float) -> float:
        if not logarithmic:
            return _BAR_WIDTH * value / right
        share = math.log(max(value, left) / left) / math.log(right / left)
        return max(2.0, _BAR_WIDTH * share)

    scale = "logarithmic scale" if logarithmic else "linear scale"
    out = [
        f'<text class="title" x="16" y="26">{escape(title)}</text>',
        f'<text class="small" x="16" y="46">{escape(says)}; {scale}</text>',
    ]
    y, group = 58.0, ""
    for bar in bars:
        if bar.group != group:
            group = bar.group
            out.append(f'<text class="group" x="16" y="{y + 20:.0f}">{escape(group)}</text>')
            y += _GROUP
        out += _row(bar, y, width)
        y += _ROW if bar.promise else _ROW_PLAIN
    height = y + 24
    if logarithmic:
        out[2:2] = _decades(left, right, height, width, unit)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" '
        f'width="{_WIDTH}" height="{height:.0f}" role="img" aria-label="{escape(title)}">\n'
        f"<style>{_STYLE}\n</style>\n"
        f'<rect class="page" width="{_WIDTH}" height="{height:.0f}" rx="6"/>\n'
        + "\n".join(out)
        + "\n</svg>\n"
    )


def _row(bar: Bar, y: float, width: Width) -> list[str]:
    end = _BAR_AT + width(bar.value)
    after = end
    lines = [
        f'<text x="16" y="{y + 15:.0f}">{escape(bar.label)}</text>',
        (
            f'<rect class="{"own" if bar.own else "bar"}" x="{_BAR_AT}" y="{y + 4:.0f}" '
            f'width="{end - _BAR_AT:.1f}" height="14" rx="2"/>'
        ),
    ]
    if bar.reach > bar.value:
        after = _BAR_AT + width(bar.reach)
        lines += [
            (
                f'<line class="reach" x1="{end:.1f}" y1="{y + 11:.0f}" x2="{after:.1f}" '
                f'y2="{y + 11:.0f}"/>'
            ),
            (
                f'<line class="reach" x1="{after:.1f}" y1="{y + 6:.0f}" x2="{after:.1f}" '
                f'y2="{y + 16:.0f}"/>'
            ),
        ]
    # An axis may cross the value. Not by `paint-order`, which not every renderer knows: there the
    # stroke would cover the words.
    lines += [
        f'<text{halo} x="{after + 8:.1f}" y="{y + 15:.0f}">{escape(bar.shown)}</text>'
        for halo in (' class="halo" aria-hidden="true"', "")
    ]
    if bar.promise:
        lines.append(f'<text class="small" x="16" y="{y + 31:.0f}">{escape(bar.promise)}</text>')
    return lines


def _decades(left: float, right: float, height: float, width: Width, unit: str) -> list[str]:
    """A thin line at each power of ten, with its name below."""
    lines = []
    at = left
    while at <= right:
        x = _BAR_AT + (width(at) if at > left else 0)
        lines += [
            f'<line class="axis" x1="{x:.1f}" y1="56" x2="{x:.1f}" y2="{height - 20:.0f}"/>',
            (
                f'<text class="small" text-anchor="middle" x="{x:.1f}" y="{height - 8:.0f}">'
                f"{escape(short(at, unit))}</text>"
            ),
        ]
        at *= 10
    return lines


# --- which charts ---------------------------------------------------------------------------------

_OUTLIVES = {
    "nothing": "when the call has returned, it outlives nothing",
    "the agent": "it outlives the agent",
    "all processes": "it outlives all processes",
    "power": "it outlives power",
}


def _of(report: dict[str, Any], question: str, series: str) -> list[dict[str, Any]]:
    figures: list[dict[str, Any]] = report["figures"]
    return [f for f in figures if f["question"] == question and f.get("series") == series]


def _costs(report: dict[str, Any], pace: str) -> str | None:
    middles = _of(report, "peers", f"p50, {pace}")
    for share in ("p99.9", "p99"):  # the deepest that all of them have calls enough for
        tails = {f["who"]: f["value"] for f in _of(report, "peers", f"{share}, {pace}")}
        if len(tails) == len(middles):
            break
    bars = [
        Bar(
            f["who"], f["value"],
            f"{short(f['value'], f['unit'])}, {share} {short(tails[f['who']], f['unit'])}",
            _OUTLIVES[f["outlives"]], f["promise"], tails[f["who"]], f["who"].startswith("walld"),
        )
        for outlives in _OUTLIVES
        for f in middles
        if f["outlives"] == outlives
    ]  # fmt: skip
    how = {"60/s": "at 60 tokens a second", "flat out": "flat out"}[pace]
    title = f"What recording one token costs the agent, {how}"
    says = f"bar: p50 of the call, line: to {share}; by what a token outlives once it has returned"
    return drawn(title, says, bars, "us") if bars else None


def _plain(report: dict[str, Any], question: str, series: list[str], title: str, says: str,
           ) -> str | None:  # fmt: skip
    units = [f["unit"] for one in series for f in _of(report, question, one)]
    bars = [
        Bar(
            f["who"], f["value"], short(f["value"], f["unit"]),
            one if len(series) > 1 else "", f["promise"], own="with walld" in f["who"]
            or f["who"].startswith("walld"),
        )
        for one in series
        for f in _of(report, question, one)
    ]  # fmt: skip
    return drawn(title, says, bars, units[0]) if bars else None


def _by_disk(report: dict[str, Any]) -> str | None:
    bars, unit = [], ""
    for f in report["figures"]:
        if f["question"] == "slow_disks" and f["series"].startswith("token, p50, "):
            disk, unit = f["series"].removeprefix("token, p50, "), f["unit"]
            (tail,) = (
                one["value"]
                for one in _of(report, "slow_disks", f"token, p99, {disk}")
                if one["who"] == f["who"]
            )
            shown = f"{short(f['value'], unit)}, p99 {short(tail, unit)}"
            bars.append(Bar(f["who"], f["value"], shown, disk, reach=tail, own=f["who"] == "walld"))
    title = "What recording one token costs the agent, by how much later each write returns"
    says = "20 streams at 60 tokens a second; bar: p50 of the call, line: to p99"
    return drawn(title, says, bars, unit) if bars else None


_STREAMED = {
    "sent to recorded": "from the provider's send of a token to its record in the agent",
    "between tokens": "time between tokens in the agent",
}
"""What a series of `streaming` measures; the chart is of the first of them that is there."""


def charts(report: dict[str, Any]) -> dict[str, str]:
    """Name of the file: its text; of the questions that the report answers."""
    streamed = dict.fromkeys(f["series"] for f in report["figures"] if f["question"] == "streaming")
    kind = next((k for k in _STREAMED if any(one.startswith(k) for one in streamed)), "")
    made = {
        "token-paced.svg": _costs(report, "60/s"),
        "token-flat-out.svg": _costs(report, "flat out"),
        "ingest.svg": _plain(
            report, "ingest", ["events a second"], "Bulk ingest on one core",
            "5-byte tokens on 8 connections, encoded beforehand, until all are written",
        ),
        "streaming.svg": _plain(
            report, "streaming", [one for one in streamed if kind and one.startswith(kind)],
            "A streamed reply, with walld and without", _STREAMED.get(kind, ""),
        ),
        "slow-disks.svg": _by_disk(report),
    }  # fmt: skip
    return {name: text for name, text in made.items() if text is not None}


def main(results: str, folder: str) -> None:
    """All that the file has."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, text in charts(json.loads(Path(results).read_text())).items():
        (Path(folder) / name).write_text(text)
        print(Path(folder) / name)


if __name__ == "__main__":
    main(*sys.argv[1:])
