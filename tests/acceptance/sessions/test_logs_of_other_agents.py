"""What four programs keep of a long task, each kept here: the ledger stands in for their own files.

gptme's event log, pi's session tree, hermes' turn journal, and the replay of a session; with both
clients, against a real daemon.
"""

from __future__ import annotations

import math
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import walld_client
from agents.process import Obedient
from daemon_process import DaemonProcess, until


def contents(session: Any, **options: Any) -> list[Any] | None:
    told = session.messages(**options)
    return None if told is None else [one["content"] for one in told]


def files_of(daemon: DaemonProcess, name: str) -> list[Path]:
    return [path for path in daemon.files() if path.name == name]


# --- gptme ----------------------------------------------------------------------------------------


def test_an_event_log_alone_gives_the_messages_back(daemon: DaemonProcess, reader: Any) -> None:
    session = reader.session("s")
    assert session.messages() is None, "no log"
    ids = [session.message("user", f"m{number}").id for number in range(60)]
    session.edit(ids[0], role="user", content="edited")
    session.undo(57)
    assert contents(session) == ["edited", "m1", "m2"]
    session.edit([{"role": "user", "content": content} for content in "ab"])
    session.message("assistant", "c")
    session.undo(1)
    assert contents(session) == ["a", "b"]
    assert daemon.terminate() == 0
    (snapshot,) = files_of(daemon, "snapshot")  # the periodic checkpoint, never the truth
    snapshot.unlink()
    daemon.start()
    assert contents(session) == ["a", "b"], "out of its events alone, folded anew"
    session.undo(99)
    assert contents(session) == []
    daemon.restart()
    assert contents(session) == [], "written, and all of it undone"
    assert len(session.events()) == 66


# --- pi -------------------------------------------------------------------------------------------


def test_a_tree_with_a_leaf_that_is_named(daemon: DaemonProcess, reader: Any) -> None:
    session = reader.session("s")
    root = session.message("user", "task").id
    session.change_model("small")
    first = session.message("assistant", "first try").id
    session.append("app.note", {"of": "an extension"})
    session.label(first, "slow")
    session.branch(root, "second", summary="the first try was slow")
    assert session.state()["model"] is None, "the model is that of the path"
    session.change_model("large")
    second = session.message("assistant", "second try").id
    told = ["task", "the first try was slow", "second try"]
    assert contents(session) == told
    assert session.state()["model"] == "large"
    assert "large" not in str(session.messages()), "it steers the next request, in no message"
    note = session.find("app.note")[0]
    session.branch(note["id"])  # from any entry, one of a branch that was left too
    third = session.message("user", "go on").id
    assert contents(session) == ["task", "first try", "go on"]
    assert session.state()["model"] == "small"
    session.compact("all in short", third)
    assert contents(session) == ["all in short", "go on"]
    assert contents(session, compacted=False) == ["task", "first try", "go on"]
    assert contents(session, branch=second) == told
    view = session.project("tree")
    nodes = {node["id"]: node for node in view["nodes"]}
    assert view["leaf"] == session.state()["leaf"]
    assert nodes[first]["label"] == "slow"
    assert view["names"] == {"second": root}
    assert nodes[third]["parent"] == note["id"]
    copy = session.fork(second, "copy")
    assert contents(copy) == told
    assert copy.state()["forked_from"] == {"session": "s", "at": second, "whole": False}
    assert copy.state()["model"] == "large"
    daemon.restart()
    assert session.project("tree") == view


# --- hermes ---------------------------------------------------------------------------------------


def test_a_journal_of_turns(daemon: DaemonProcess, reader: Any, agent: Obedient) -> None:
    """What was submitted is durable when the call returns; a start sees who is gone."""
    agent.do("""
    session = client.session("s")
    done = session.submit("done", message_id="done")
    done.worker_started()
    with done.reply() as reply:
        reply.token("answer")
        reply.end()
    done.completed()
    ends = session.submit("twice", message_id="twice")
    ends.interrupted("user")
    ends.completed()
    session.submit("begun", message_id="begun").worker_started()
    session.submit("lost", message_id="lost")
    """)
    daemon.kill()
    agent.kill()
    daemon.start()
    session = reader.session("s")
    assert contents(session) == ["done", "answer", "twice", "begun", "lost"]
    turns = session.state()["turns"]
    assert [(one["message_id"], one["state"], one["reason"]) for one in turns] == [
        ("done", "completed", None),
        ("twice", "interrupted", "user"),
        ("begun", "interrupted", "agent_lost"),
        ("lost", "interrupted", "agent_lost"),
    ]
    report = reader.audit("s", present={"done", "begun"})
    assert report.overall == "warn"
    assert list(report.collisions.values()) == [1], "a second end is kept, and reported"
    found = {one.message_id: (one.kind, one.category) for one in report.findings}
    assert found == {
        "twice": ("turn_journal_interrupted_turn", "repairable"),
        "begun": ("turn_journal_interrupted_turn", "ok"),
        "lost": ("turn_journal_pending_turn", "repairable"),
    }
    steps = reader.repair_plan("s", present={"done", "begun"})
    told = [(one.message_id, one.op, one.message["role"]) for one in steps]
    assert told == [
        ("twice", "materialise_user_message", "user"),
        ("twice", "mark_interrupted", "system"),
        ("begun", "mark_interrupted", "system"),
        ("lost", "materialise_user_message", "user"),
        ("lost", "mark_interrupted", "system"),
    ]
    assert "answer" not in str([one.message for one in steps])
    with pytest.raises(walld_client.Refused, match="illegal_turn"):
        session.turn(turns[0]["turn_id"]).worker_started()


def test_an_audit_names_what_damage_left(daemon: DaemonProcess, reader: Any) -> None:
    session = reader.session("s")
    session.message("user", "first")
    turn = session.submit("lost to damage", message_id="m", attachments=[b"bytes"])
    turn.completed()
    assert daemon.terminate() == 0
    (path,) = files_of(daemon, "events.jsonl")
    path.write_bytes(path.read_bytes().replace(b"lost to damage", b"lost to d*mage", 1))
    (artifact,) = files_of(daemon, sha256(b"bytes").hexdigest())
    artifact.unlink()
    daemon.start()
    report = reader.audit("s")
    assert (report.overall, report.exit_code) == ("needs_manual_review", 2)
    kinds = [one.kind for one in report.findings]
    assert kinds == ["chain_broken"], "what hangs on what is lost is no fault of its own"
    assert contents(session) == ["first"], "the readable rest stays readable"
    other = reader.session("other")
    other.submit("q", attachments=[b"bytes"])
    assert daemon.terminate() == 0
    files_of(daemon, artifact.name)[0].write_bytes(b"other")
    daemon.start()
    (found,) = [one for one in reader.audit("other").findings if one.kind == "artifact_missing"]
    assert '"why":"changed"' in (found.subject or "")
    gate = other.resume_check()
    assert [one["code"] for one in gate["reasons"]] == ["artifact_changed"]
    other.artifact(b"bytes")
    assert not other.resume_check()["reasons"], "put again"


# --- replay ---------------------------------------------------------------------------------------


def test_a_replay_says_where_the_work_stopped_and_runs_nothing(
    daemon: DaemonProcess, reader: Any, agent: Obedient, tmp_path: Path
) -> None:
    work = tmp_path / "work"  # beside the daemon's files, which change
    work.mkdir()
    (work / "a.txt").write_text("then")
    agent.do(f"""
    session = client.session("s")
    session.checkpoint_workspace({str(work)!r}, ["a.txt"])
    turn = session.submit("work")
    options = dict(side_effect="external-write", resume_policy="require-user-confirmation")
    boundaries = []
    def at():
        boundaries.append(session.resume_check()["boundary"])
    at()
    turn.intent("mail", {{"to": "x"}}, call_id="c1", **options); at()
    turn.decision("c1", "ask", "policy 7"); turn.approval("c1", "asked"); at()
    turn.approval("c1", "granted"); at()
    turn.tool_started("c1"); at()
    turn.tool_finished("c1", {{"sent": True}}); at()
    turn.observation("c1", "it was sent"); at()
    turn.intent("rm", {{}}, call_id="c2", **options); turn.approval("c2", "denied")
    turn.intent("read", {{}}, call_id="c3", side_effect="read", resume_policy="replay-from-event")
    turn.tool_started("c3"); turn.tool_finished("c3", "no", failed=True)
    session.append("budget", {{"used": 3, "limit": 4}}, correlation="task 1", cause=turn.turn_id)
    turn.intent("mail", {{"to": "y"}}, call_id="c4", **options); turn.approval("c4", "granted")
    turn.tool_started("c4")
    """)
    named = ["before_intent", "intended", "intended", "approved", "started", "finished", "observed"]
    assert agent.do("boundaries") == named
    agent.kill()
    session = reader.session("s")
    until(lambda: session.state()["turns"][0]["state"] == "interrupted", "its process is gone")
    before = session.events()
    gate = session.resume_check(work)
    assert (gate["status"], gate["boundary"]) == ("blocked", "started")
    assert [one["code"] for one in gate["reasons"]] == ["tool_unknown"]
    (tool,) = gate["tools"]
    assert (tool["call_id"], tool["outcome"], tool["may"]) == ("c4", "unknown", "ask_user")
    assert gate["workspace"]["verdict"] == "same"
    (work / "a.txt").write_text("now")
    codes = [one["code"] for one in session.resume_check(work)["reasons"]]
    assert codes == ["tool_unknown", "workspace_changed"]
    assert session.events() == before, "nothing ran, nothing was written"

    events = {one["id"]: one for one in before}
    chain = [one for one in before if one["payload"].get("call_id") == "c1"]
    assert [one.get("cause") for one in chain] == [None, *(one["id"] for one in chain[:-1])]
    (budget,) = session.find("budget")
    assert (budget["correlation"], events[budget["cause"]]["type"]) == ("task 1", "turn_submitted")
    state = session.state()
    assert [one["call_id"] for one in state["failures"]] == ["c3"]
    assert [one["call_id"] for one in state["denials"]] == ["c2"]
    assert state["budget"] == {"used": 3, "limit": 4}
    waits = [(one["action"], one.get("call_id")) for one in session.project("pending")]
    assert waits == [("answer_turn", None), ("observe_tool", "c3"), ("settle_tool", "c4")]
    spans = {one["attributes"].get("call_id"): one["status"] for one in session.project("trace")}
    assert spans == {None: "error", "c1": "ok", "c2": "error", "c3": "error", "c4": "unset"}
    assert session.project("eval")["metadata"]["outcomes"] == {
        "denied": 1,
        "done": 1,
        "failed": 1,
        "unknown": 1,
    }
    unanswered = [one for one in reader.audit("s").findings if one.kind == "tool_call_unanswered"]
    assert [one.subject for one in unanswered] == ["c4"]
    session.append("budget", {"used": 4, "limit": 4})
    assert "budget_exhausted" in str(session.resume_check())
    for none in ({"remaining": -math.inf}, {"used": math.inf, "limit": 4}, {"remaining": math.nan}):
        session.append("budget", none)
        assert "budget_exhausted" not in str(session.resume_check())
