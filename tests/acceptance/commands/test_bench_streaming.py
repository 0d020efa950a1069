"""The bench sees what walld adds to a token: a delay planted in the agent's call, by its clock."""

from __future__ import annotations

import os

import pytest

from bench.costs import streaming
from bench.machine import Cores
from bench.report.charts import charts
from bench.report.pages import _streaming
from bench.report.table import as_json
from bench.run import Run

DELAY_US = 60_000_000
"""More than any neighbour adds: of a call that would take so long, the clock alone says so."""
DELAYED = f"""
import sys, time
from walld_client.reply.reply import ReplyBase
clock, token, late_ns = time.perf_counter_ns, ReplyBase.token, [0]
def late(self, text, **info):
    late_ns[0] = {DELAY_US} * 1000
    return token(self, text, **info)
def after() -> int:
    more, late_ns[0] = late_ns[0], 0
    return clock() + more
ReplyBase.token, time.perf_counter_ns = late, after
from bench.load.streamed import main
main(sys.argv[1])
"""


def test_a_delay_on_every_token_is_not_met_and_shown(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "_PROGRAM", ("-c", DELAYED))
    cores = os.sched_getaffinity(0)
    run = Run(tmp_path_factory.mktemp("s"), Cores(cores, cores), True, lambda _share, _at: None)
    figures = streaming.compared(run, 250, 160, 8)
    by_name = {one.name: one for one in figures}
    middle = by_name["later with walld, 250/s, p50"]
    assert middle.met is False, middle
    # Less what the other program, which says to nobody, was late by itself.
    assert middle.value > DELAY_US / 2
    assert by_name["tokens missing, 250/s"].value == 0
    report = {"figures": as_json(figures)}
    late, gaps = _streaming(report["figures"])
    assert f"| {middle.value:+.1f} us |" in late
    assert "| between tokens | with walld | without |\n" in gaps
    shown = charts(report)["streaming.svg"]
    assert "sent to recorded, 250/s, p50" in shown
    assert "between tokens" not in shown  # ms have no place on a scale of us
