"""What the pages show of the bench is what was measured, all of it, as it is."""

from __future__ import annotations

import csv
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from bench import command as program
from bench import publish
from bench.costs import ladders
from bench.peers.known import PEERS
from bench.peers.pouring import POURED
from bench.questions import QUESTIONS
from bench.report import charts as charts_module
from bench.report import pages, totals
from bench.report.charts import Bar, charts, drawn, short
from bench.report.table import Figure, as_json

# --- the pages and the charts -------------------------------------------------------------------


def published() -> dict[str, Any]:
    report: dict[str, Any] = json.loads(publish.PUBLISHED.read_text())
    return report


@pytest.mark.parametrize("page", publish.PAGES, ids=lambda page: page.name)
def test_a_page_shows_what_was_measured(page: Path) -> None:
    text = page.read_text()
    assert publish.placed(text, publish.PAGES[page](published())) == text, (
        f"{page.name} is not what bench/published.json gives: python -m bench.publish it"
    )


def test_the_charts_are_of_the_same_figures() -> None:
    for name, text in charts(published()).items():
        assert (publish.CHARTS / name).read_text() == text, name


def test_every_bar_has_its_value_and_its_promise() -> None:
    report = published()
    for text in charts(report).values():
        ET.fromstring(text)
    words = ET.fromstring(charts(report)["token-paced.svg"]).itertext()
    shown = " ".join(words)
    figures = [one for one in report["figures"] if one["series"] == "p50, 60/s"]
    assert len(figures) >= 8
    for one in figures:
        assert one["who"] in shown
        assert one["promise"] in shown
        assert short(one["value"], one["unit"]) in shown


def test_no_bar_covers_its_name() -> None:
    """A letter of DejaVu Sans, which stands in where there is no other, is 7.6 pixels wide."""
    names = [*(made().name for made in (*PEERS.values(), *POURED.values())), "walld's backlog"]
    assert all(16 + 7.6 * len(name) < charts_module._BAR_AT for name in names), max(names, key=len)


def test_a_wide_range_is_logarithmic_and_says_so() -> None:
    near = drawn("t", "s", [Bar("a", 1.0, "1"), Bar("b", 10.0, "10")])
    far = drawn("t", "s", [Bar("a", 1.0, "1"), Bar("b", 1000.0, "1000 < 2000")])
    assert "linear scale" in near
    assert "logarithmic scale" in far
    assert "1000 &lt; 2000" in far


def test_a_page_without_marks_is_an_error() -> None:
    with pytest.raises(ValueError, match="marks of bench"):
        publish.placed("# walld\n", "table\n")


@pytest.mark.parametrize("words", [["--publish", "ingest"], ["--publish", "--quick"]])
def test_what_would_empty_the_pages_is_one_error(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        program.main(words)
    assert ended.value.code == 2
    assert "it takes no names, and not --quick" in capsys.readouterr().err


def whole() -> dict[str, Any]:
    """A report that has one figure of each question that the published one has nothing of."""
    report = published()
    there = {figure["question"] for figure in report["figures"]}
    report["figures"] += as_json([Figure(q, "a", 1.0, "") for q in QUESTIONS if q not in there])
    return report


def test_a_report_that_has_not_every_question_is_not_published(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = whole()
    for name in ("PAGES", "PUBLISHED", "CHARTS"):  # none of them is to be used
        monkeypatch.delattr(publish, name)
    some = [figure for figure in report["figures"] if figure["question"] not in ("ingest", "bulk")]
    with pytest.raises(ValueError, match=r"has nothing of bulk, ingest$"):
        publish.publish(report | {"figures": some})
    with pytest.raises(ValueError, match=r"is of a quick run$"):
        publish.publish(report | {"quick": True})


def test_a_whole_report_is_published_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report, page = whole(), tmp_path / "RESULTS.md"
    page.write_text("# Mine\n\n<!-- bench: made by hand -->\nold\n<!-- bench: end -->\n")
    monkeypatch.setattr(publish, "PAGES", {page: totals.totals})
    monkeypatch.setattr(publish, "PUBLISHED", tmp_path / "published.json")
    monkeypatch.setattr(publish, "CHARTS", tmp_path / "charts")
    publish.publish(report)
    assert json.loads((tmp_path / "published.json").read_text()) == report
    assert set(charts(report)) == {path.name for path in (tmp_path / "charts").iterdir()}
    text = page.read_text()
    assert text.startswith("# Mine\n")
    assert "\nold\n" not in text
    assert re.findall(r"^\| \[`(\w+)`\]", text, re.M) == list(QUESTIONS)


def test_a_run_that_cannot_be_published_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has taken most of an hour: the results file stays."""
    monkeypatch.setattr(program, "RESULTS", tmp_path)
    monkeypatch.setattr(program, "finishing", lambda: None)
    monkeypatch.setattr(program, "_ask", lambda *_arguments: None)
    assert program.main(["--publish"]) == 1
    assert "bench: not published: the report has nothing of agent_cost, " in capsys.readouterr().err
    assert len(list(tmp_path.glob("*.json"))) == 1


# --- how figures stand in a page ------------------------------------------------------------------


def page_of(*figures: Figure) -> str:
    return pages.every_figure(published() | {"figures": as_json(list(figures))})


def test_every_goal_is_counted_and_said_as_it_is() -> None:
    """Met, missed, and what differs too much from round to round."""
    page = page_of(
        Figure("growth", "free", 7.0, "us", note="of 5 calls"),
        Figure("bulk", "fast", 3e6, "B", 2e6, most=False, spread=(2.5e6, 4e6)),
        Figure("bulk", "short", 700e-3, "us", 0.5, spread=(-150.0, 1200.0)),
        Figure("bulk", "even", 1.04, "x", 1.0, undecided=True),
    )
    goals, questions = page.split("## Question by question")
    assert "\n1 of 3 goals met, 1 not decidable.\n" in goals
    fast = "| fast | 3 million B | 2.5 .. 4 million B | at least 2 million B | met |"
    short_ = "| short | 700 ns | -150 us .. 1.2 ms | at most 500 ns | **not met** |"
    even = "| even | 1.04 |  | at most 1 | **not decidable** |"
    for row in (fast, short_, even):
        assert f"| [bulk](#bulk) {row}\n" in goals
        assert f"\n{row}\n" in questions
    assert "free" not in goals
    assert "\n| free | 7 us |  |  |  |\n\n- of 5 calls\n" in questions


def test_a_ladder_is_one_row_with_its_causes(monkeypatch: pytest.MonkeyPatch) -> None:
    takes = {"a send of as many bytes": lambda: 2e-6, "token()": lambda: 1.502e-3}
    monkeypatch.setattr(ladders, "timed", lambda action, times: [action() for _ in range(times)])
    monkeypatch.setattr(ladders, "_REST_SECONDS", 0.0)
    figures = ladders._climbed("token", takes, 5, 1)
    page = page_of(
        *figures,
        Figure("submits", "64 submitters, sync +5 ms: throughput", 4000.0, "/s"),
        Figure("submits", "64 submitters, sync +5 ms: throughput to one sync an event", 20.0, "x",
               25.0, most=False, spread=(16.0, 32.0)),
    )  # fmt: skip
    lines = page.splitlines()
    (row,) = (line for line in lines if line.startswith("| token | a send of as many bytes, "))
    assert row == (
        "| token | a send of as many bytes, 2 us | token(), 1.5 ms | 751 | 751 .. 751 "
        "| the link's lock, the copy that is kept, seq and the checks 1.5 ms |"
    )
    (many,) = (line for line in lines if line.startswith("| durable submits, 64 submitters, "))
    assert many.endswith("| one sync for all, 12,800 /s | 4,000 /s | 3.2 | 2 .. 4 |  |")


def test_what_is_too_large_to_be_told_is_null_and_missed() -> None:
    """A flush lag above the last bucket: JSON has no infinity."""
    (row,) = as_json([Figure("live_streams", "lag, highest bucket", float("inf"), "s", 3.0)])
    assert json.loads(json.dumps(row, allow_nan=False))["value"] is None
    assert pages._measured(row) == [
        "lag, highest bucket", "beyond the last one", "", "at most 3 s", "**not met**",
    ]  # fmt: skip


# --- the page of results --------------------------------------------------------------------------


def results_of(*figures: Figure) -> str:
    return totals.totals(published() | {"figures": as_json(list(figures))})


def test_a_question_tells_its_goals_and_the_one_that_is_farthest() -> None:
    page = results_of(
        Figure("growth", "free", 7.0, "us"),
        Figure("bulk", "fast", 3e6, "B", 2e6, most=False),
        Figure("bulk", "near", 1.5e6, "B", 2e6, most=False),
        Figure("bulk", "far", 6.0, "us", 2.0),
        Figure("bulk", "even", 1.04, "x", 1.0, undecided=True),
        Figure("loss", "lost", 3.0, "", 0.0),
        Figure("live_streams", "late", 4.0, "s", 1.0),
        Figure("live_streams", "lag", float("inf"), "s", 3.0),
    )
    assert "\n1 of 7 goals met, 1 not decidable.\n" in page
    asked = {row.split("|")[1].strip(): row for row in page.splitlines() if row[:2] == "| "}
    assert asked["[`bulk`](costs/bulk.py)"].endswith("| 4 | 4 | 1 | 1 |")
    assert asked["[`growth`](costs/growth.py)"].endswith("| 1 | 0 | 0 | 0 |")
    assert "`growth`" not in asked
    assert asked["`bulk`"].startswith("| `bulk` | 2 | far: 6 us, at most 2 us |")
    assert asked["`bulk`"].endswith(f"| {totals.limits()['bulk']} |")
    assert asked["`loss`"] == "| `loss` | 1 | lost: 3, at most 0 |  |", "nobody has said why yet"
    lag = "| `live_streams` | 2 | lag: beyond the last one, at most 3 s |"
    assert asked["`live_streams`"].startswith(lag)


def test_what_is_not_met_says_what_limits_it() -> None:
    missed = {one["question"] for one in published()["figures"] if one["met"] is False}
    said = totals.limits()
    assert missed <= set(said), f"a row of {totals.LIMITS.name} says why, in short"
    assert all(len(words) <= 160 for words in said.values())


def test_the_rows_about_limits_and_gaps_are_well_formed() -> None:
    with totals.LIMITS.open(newline="") as file:
        heading, *rows = csv.reader(file)
    assert heading == ["question", "goal", "why", "in short"]
    for row in rows:
        assert len(row) == 4, row
        assert set(row[0].split()) <= set(QUESTIONS), row
        assert row[1], row
        assert row[2], row
    with (totals.LIMITS.parent / "bench_gaps.csv").open(newline="") as file:
        assert all(len(row) == 3 and all(row) for row in csv.reader(file))


def test_the_page_of_results_is_short() -> None:
    (page,) = (page for page in publish.PAGES if page.name == "RESULTS.md")
    assert len(page.read_text().splitlines()) <= 80
