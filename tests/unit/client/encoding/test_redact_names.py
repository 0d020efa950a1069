"""`redact` and the names in a session's entries: ids, hashes, words of a list, tools, paths."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import walld_client
from fake_ledger import FakeLedger
from walld_client.encoding.entry_names import NAMES, names_of
from walld_client.encoding.redaction import redacted

from walld.sessions.state.events import KNOWN

FREE = {
    "message": {"content"},
    "label": {"text"},
    "branch_summary": {"text"},
    "setting": {"value"},
    "compaction": {"summary"},
    "turn_submitted": {"meta"},
    "turn_completed": {"reason"},
    "turn_interrupted": {"reason"},
    "tool_intent": {"arguments"},
    "observation": {"text"},
}
"""What a person or a model said, and what holds the application's own."""
NO_TEXT = {"n", "append", "whole", "missing", "failed", "size", "used", "limit", "remaining"}
HIDDEN = "***"


def hidden(_text: str) -> str:
    return HIDDEN


def test_every_field_that_walld_knows_is_a_name_or_is_free() -> None:
    assert NAMES.keys() == KNOWN.keys()
    for type, fields in KNOWN.items():  # noqa: A001
        named = {re.split(r"\.", path)[0] for path in NAMES[type]}
        rest = {field.name for field in fields} - named - NO_TEXT - {"exhausted"}
        assert rest - FREE.get(type, set()) <= {"content"}, type
        assert not (named & FREE.get(type, set())) - {"content"}, type


SAID = {
    "role": "tool",
    "tool_call_id": "c",
    "name": "Bob",
    "_wal_stream": "r",
    "_message_id": "m",
    "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x", "text": "x"}, "x"],
    "tool_calls": [
        {"id": "c", "name": "t", "arguments": "x", "outcome": "done", "result": "x"},
        {"id": "c", "type": "function", "function": {"name": "t", "arguments": "x"}},
    ],
}
TOLD = {
    "role": "tool",
    "tool_call_id": "c",
    "name": HIDDEN,
    "_wal_stream": "r",
    "_message_id": "m",
    "content": [
        {"type": "tool_result", "tool_use_id": "c", "content": HIDDEN, "text": HIDDEN},
        HIDDEN,
    ],
    "tool_calls": [
        {"id": "c", "name": "t", "arguments": HIDDEN, "outcome": "done", "result": HIDDEN},
        {"id": "c", "type": "function", "function": {"name": "t", "arguments": HIDDEN}},
    ],
}
FILES = {"a.py": "0" * 64, "gone": None}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "message": ("message", SAID, TOLD),
    "edit": ("message_edit", {"target": "a", "message": SAID}, {"target": "a", "message": TOLD}),
    "list": ("message_edit", {"messages": [SAID]}, {"messages": [TOLD]}),
    "replacement": ("compaction", {"replacement": [SAID]}, {"replacement": [TOLD]}),
    "label": ("label", {"target": "a", "text": "x"}, {"target": "a", "text": HIDDEN}),
    "setting": ("setting", {"key": "k", "value": "x"}, {"key": "k", "value": HIDDEN}),
    "no text": ("setting", {"key": {"k": "x"}}, {"key": {"k": HIDDEN}}),
    "files": ("tool_finished", {"call_id": "c", "files": FILES}, {"call_id": "c", "files": FILES}),
    "fingerprint": (
        "lifecycle",
        {"kind": "k", "fingerprint": {"head": "h", "files": FILES, "note": "x"}, "note": "x"},
        {"kind": "k", "fingerprint": {"head": "h", "files": FILES, "note": HIDDEN}, "note": HIDDEN},
    ),
    "attached": (
        "turn_submitted",
        {"attachments": [{"sha256": "0", "url": "x"}, {"_artifact": {"sha256": "0", "name": "x"}}]},
        {
            "attachments": [
                {"sha256": "0", "url": HIDDEN},
                {"_artifact": {"sha256": "0", "name": HIDDEN}},
            ]
        },
    ),
    "own": (
        "app.x",
        {"role": "x", "call_id": "x", "deep": [{"_artifact": {"sha256": "0", "preview": "x"}}]},
        {
            "role": HIDDEN,
            "call_id": HIDDEN,
            "deep": [{"_artifact": {"sha256": "0", "preview": HIDDEN}}],
        },
    ),
    "steps are no keys": (
        "message_edit",
        {"messages": {"[]": {"role": "x"}}, "": "x"},
        {"messages": {"[]": {"role": HIDDEN}}, "": HIDDEN},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_names_stay_and_all_else_is_seen(name: str) -> None:
    type, payload, told = CASES[name]  # noqa: A001
    assert redacted(payload, hidden, names_of(type)) == told


def test_what_the_calls_of_a_session_name_stays(path: str, ledger: FakeLedger) -> None:
    client = walld_client.connect(path, redact=hidden)
    session = client.session("S")
    put = session.artifact(b"bytes", "text/plain")
    turn = session.submit(
        "x", message_id="m", stream_id="r", model="g", attachments=[b"b"], note="x"
    )
    turn.intent("t", "x", side_effect="none", resume_policy="never-rerun", call_id="c")
    turn.decision("c", "allow", "x")
    turn.approval("c", "granted")
    turn.tool_finished("c", "x", files={"f": "0" * 64})
    turn.observation("c", "x")
    assert turn.reply().stream_id == "r"
    session.branch(put.id, "name", summary="x")
    client.close()
    told = [event["payload"] for event in ledger.sessions["S"]]
    attached = told[1].pop("attachments")[0]["_artifact"]
    assert told[0] == {
        "sha256": put.sha256,
        "size": 5,
        "media_type": "text/plain",
        "preview": HIDDEN,
    }
    assert ("S", bytes.fromhex(attached["sha256"])) in ledger.artifacts
    said = {"content": HIDDEN, "meta": {"note": HIDDEN}}
    assert told[1:] == [
        {"message_id": "m", "stream_id": "r", "model": "g", **said},
        {
            "call_id": "c",
            "tool": "t",
            "arguments": HIDDEN,
            "side_effect": "none",
            "resume_policy": "never-rerun",
        },
        {"call_id": "c", "verdict": "allow", "reason": HIDDEN},
        {"call_id": "c", "state": "granted"},
        {"call_id": "c", "result": HIDDEN, "files": {"f": "0" * 64}},
        {"call_id": "c", "text": HIDDEN},
        {"stream_id": "r"},
        {"target": put.id, "name": "name"},
        {"target": put.id, "text": HIDDEN},
    ]


def test_what_is_put_beside_is_what_redact_left(path: str, ledger: FakeLedger) -> None:
    def mark(text: str) -> str:
        return text.replace("secret", HIDDEN)

    client = walld_client.connect(path, redact=mark)
    client.session("S").message("user", "a secret " * 60_000)
    client.close()
    (event,) = ledger.sessions["S"]
    (held,) = ledger.artifacts.values()
    assert b"secret" not in held
    assert HIDDEN.encode() in held
    named = event["payload"]["content"]["_artifact"]
    assert ("S", bytes.fromhex(named["sha256"])) in ledger.artifacts


def test_of_a_fingerprint_everything_is_a_name(tmp_path: Path) -> None:
    """Whatever a client comes to look at: redacted, an unchanged tree would be called changed."""
    script = tmp_path / "run.sh"
    script.write_text("then")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        who = ["-c", "user.name=x", "-c", "user.email=x@x"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True)
    script.write_text("now")
    script.chmod(0o755)
    taken = walld_client.workspace_fingerprint(tmp_path, [script])
    assert taken["kinds"]
    told = redacted({"kind": "k", "fingerprint": taken}, hidden, names_of("lifecycle"))
    assert told["fingerprint"] == taken
