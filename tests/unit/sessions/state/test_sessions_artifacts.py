"""Which artifacts an event names."""

from __future__ import annotations

from session_log import Log

from walld.sessions.state.artifacts import artifacts_of
from walld.sessions.views.audit import audit

A, B, C = "a" * 64, "b" * 64, "c" * 64


def test_where_one_may_stand() -> None:
    assert list(artifacts_of("artifact", {"sha256": A, "size": 3})) == [(A, 3)]
    long = {"role": "user", "content": {"_artifact": {"sha256": B, "size": 4}}}
    assert list(artifacts_of("message", long)) == [(B, 4)]
    assert list(artifacts_of("message_edit", {"messages": [{"role": "user"}, long]})) == [(B, 4)]
    attached = {"attachments": [{"sha256": C, "size": 5}, "mine", {"sha256": "short"}]}
    assert list(artifacts_of("turn_submitted", attached)) == [(C, 5)]


def test_what_only_looks_like_one_is_none() -> None:
    for payload in ({"sha256": A}, {"_artifact": "text"}, {"content": {"_artifact": {}, "x": 1}}):
        assert list(artifacts_of("message", payload)) == []
    assert list(artifacts_of("artifact", {"sha256": 5})) == []


def test_the_audit_has_each_once_by_the_event_that_first_named_it() -> None:
    log = Log()
    log.say("user", {"_artifact": {"sha256": B, "size": 4}})
    log.say("user", {"_artifact": {"sha256": B, "size": 4}})
    log.submit("t", attachments=[{"sha256": C, "size": 5}])
    named = [(one["sha256"], one["size"], one["seq"]) for one in audit(log.events)["artifacts"]]
    assert named == [(B, 4, 1), (C, 5, 3)]
