"""Session files that other projects publish with their sources, under the licence beside each.

claude-code-log 1.7.0 (lines of Claude Code, one of each kind) and polylogue 0.2.0 (files in the
shape of Codex), as their source distributions have them.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from walld.foreign.detect import read

PUBLIC = Path(__file__).parents[2] / "golden/foreign/public"
FILES = {
    # What was said, calls, and lines that are kept as they stand: by reason.
    "claude-code-log/lines.jsonl": ("claude", 52, 18, {"repeated_id": 2}),
    "polylogue/codex-interleaved.jsonl": ("codex", 8, 2, {"unknown_type": 1}),
    "polylogue/codex-text_only.jsonl": ("codex", 2, 0, {"unknown_type": 1}),
    "polylogue/codex-tool_call.jsonl": ("codex", 4, 1, {"unknown_type": 1}),
}


def test_each_file_has_its_row_and_its_licence() -> None:
    assert {str(one.relative_to(PUBLIC)) for one in PUBLIC.glob("*/*.jsonl")} == FILES.keys()
    for name in FILES:
        assert "MIT License" in (PUBLIC / name).with_name("LICENSE").read_text()


@pytest.mark.parametrize("name", FILES)
def test_it_imports(name: str) -> None:
    format_, said, calls, reasons = FILES[name]
    imported = read((PUBLIC / name).read_bytes().splitlines(keepends=True))
    types = Counter(one.type for one in imported.entries)
    found = sum(len(one.payload.get("tool_calls") or ()) for one in imported.entries)
    assert (imported.format, types["message"], found) == (format_, said, calls)
    assert dict(imported.reasons) == reasons


@pytest.mark.parametrize("line", (PUBLIC / "claude-code-log/lines.jsonl").read_text().splitlines())
def test_each_line_of_claude_code_is_understood_alone(line: str) -> None:
    imported = read([line])
    assert (imported.format, imported.not_understood) == ("claude", 0)
