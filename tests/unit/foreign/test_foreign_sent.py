"""What a provider would be sent of the sessions of others, judged by the rules of both vendors."""

from __future__ import annotations

from pathlib import Path

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
