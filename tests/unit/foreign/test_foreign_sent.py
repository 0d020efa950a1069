"""What a provider would be sent of the sessions of others, judged by the rules of both vendors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from imported_session import events_of
from property.vendor_rules import check_sent

from walld.foreign.detect import read
from walld.sessions.views.messages import messages

FOREIGN = Path(__file__).parents[2] / "golden/foreign"
FILES = sorted(str(one.relative_to(FOREIGN)) for one in FOREIGN.rglob("*.jsonl"))


@pytest.mark.parametrize("format_", ["openai", "anthropic"])
@pytest.mark.parametrize("name", FILES)
def test_no_rule_is_broken_wherever_one_goes_on(name: str, format_: str) -> None:
    events = events_of(read((FOREIGN / name).read_bytes().splitlines(keepends=True)))
    told = 0
    for branch in (None, *(event.id for event in events)):
        sent = messages(events, format_, branch) or []
        check_sent(format_, sent)
        told += len(sent)
    assert told > 0


@pytest.mark.parametrize(
    "block",
    [
        {"type": "input_audio", "audio_url": "data:audio/wav;base64,AAAA"},
        {"type": "file", "file_id": "file-1"},
        {"type": "document", "title": "a.pdf"},
        {"type": "document", "source": None},
        {"type": "search_result", "title": "a page", "url": "https://example.org"},
    ],
)
@pytest.mark.parametrize("format_", ["openai", "anthropic"])
def test_a_block_that_another_dialect_has_in_another_shape_is_a_note(
    block: dict[str, Any], format_: str
) -> None:
    said = {"type": "message", "role": "user", "content": [block]}
    line = {"timestamp": "2026-10-02T09:00:00.000Z", "type": "response_item", "payload": said}
    sent = messages(events_of(read([json.dumps(line)])), format_) or []
    check_sent(format_, sent)
    note = f"[{block['type']}: not shown]"
    assert [one["content"] for one in sent] in ([note], [[{"type": "text", "text": note}]])
