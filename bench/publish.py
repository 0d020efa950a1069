"""Puts a results file into the pages: `python -m bench.publish RESULTS.json`.

Owns: what stands between two marks of RESULTS.md, docs/performance.md and README.md; the charts;
and `published.json`, the report they were made of. A test compares them: no figure there is typed
by hand. Refuses: a report that is quick or lacks a question; what is shown of it (`report/`).
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from bench.questions import QUESTIONS
from bench.report.charts import charts
from bench.report.pages import at_a_glance, what_a_token_costs
from bench.report.totals import totals

__all__ = ["CHARTS", "PAGES", "PUBLISHED", "placed", "publish"]

_HERE = Path(__file__).parent
PUBLISHED = _HERE / "published.json"
CHARTS = _HERE / "charts"
_MARKS = re.compile(r"(<!-- bench: made by .*? -->\n).*?(<!-- bench: end -->)", re.S)
PAGES = {
    _HERE / "RESULTS.md": totals,
    _HERE.parent / "docs/performance.md": at_a_glance,
    _HERE.parent / "README.md": what_a_token_costs,
}
"""Each page that shows figures, and what makes its Markdown of a report."""


def placed(page: str, markdown: str) -> str:
    """The page with that between its marks. ValueError where it has none."""
    made, count = _MARKS.subn(lambda found: f"{found[1]}\n{markdown}\n{found[2]}", page)
    if count != 1:
        raise ValueError(f"a page has {count} places between the marks of bench, wanted 1")
    return made


def publish(report: dict[str, Any]) -> None:
    """The pages, charts and published.json.

    ValueError where the report is a quick one or a question has no figures, because it crashed or
    was not asked: the pages would lose what they show of it.
    """
    answered = {figure["question"] for figure in report["figures"]}
    missing = [question for question in QUESTIONS if question not in answered]
    if report["quick"] or missing:
        why = "is of a quick run" if report["quick"] else f"has nothing of {', '.join(missing)}"
        raise ValueError(f"not published: the report {why}")
    pages = {page: placed(page.read_text(), shown(report)) for page, shown in PAGES.items()}
    for page, text in pages.items():
        page.write_text(text)
    PUBLISHED.write_text(json.dumps(report, indent=1) + "\n")
    CHARTS.mkdir(exist_ok=True)
    for name, text in charts(report).items():
        (CHARTS / name).write_text(text)


if __name__ == "__main__":
    try:
        publish(json.loads(Path(sys.argv[1]).read_text()))
    except ValueError as error:
        sys.exit(f"bench: {error}")
