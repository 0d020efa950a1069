"""The wiring: an agent that knows nothing but the protocol, and its words in a segment on disk."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from daemon_process import ROOT, DaemonProcess, until

from walld.disk.real import RealDisk
from walld.wal.log_scan import LogScan
from walld.wal.records import Begin, Item, Text, decode_body


def items_in(data: Path) -> list[Item]:
    """Everything that stands in the segments of a directory."""
    items: list[Item] = []
    with RealDisk(str(data), read_only=True) as disk:
        for _, batch in LogScan(disk):
            for record in batch.records:
                body = batch.body(record.offset, record.body_bytes)
                items += decode_body(record.stream_no, body) if body else []
    return items


def test_a_stub_agent_is_in_a_segment(daemon_on_each: DaemonProcess) -> None:
    daemon = daemon_on_each
    words = ["every ", "word ", "of it"]
    command = [sys.executable, "-S", "-E", str(ROOT / "tests/agents/stub.py"), daemon.socket_path]
    stub = subprocess.Popen([*command, "the-stream", "the-session", *words], stdout=subprocess.PIPE)
    try:
        assert stub.stdout is not None
        assert stub.stdout.readline() == b"3\n"
        until(lambda: len(items_in(daemon.data)) >= 2, "a start and a run in a segment")
        begin, text = items_in(daemon.data)
        assert isinstance(begin, Begin)
        assert isinstance(text, Text)
        assert (begin.stream_id, begin.session_id) == ("the-stream", "the-session")
        assert (begin.owner.pid, begin.number) == (stub.pid, 1)
        assert (text.first_seq, text.last_seq, text.text) == (1, 3, b"every word of it")

        dumped = daemon.cli("dump", "--data", str(daemon.data), "--items", "--json")
        assert dumped.returncode == 0, dumped
        rows = [json.loads(line) for line in dumped.stdout.splitlines()]
        (shown,) = [row for row in rows if row["what"] == "begin"]
        assert (shown["stream_id"], shown["session_id"]) == ("the-stream", "the-session")

        live = daemon.reader.recover("the-session")
        assert live is not None
        assert (live.text, live.status) == ("every word of it", "live")
        status = daemon.status()
        assert (status["state"], status["streams_live"]) == ("ok", 1)
    finally:
        stub.kill()
        stub.communicate()
    reply = daemon.orphan("the-stream")
    assert (reply.text, reply.status, reply.partial) == ("every word of it", "crashed", True)
    assert reply.partial_reason == "mid_sentence"
