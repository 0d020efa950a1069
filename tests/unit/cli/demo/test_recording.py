"""The demo's recording is whole, and long enough to be killed in the middle of it."""

import json

from walld.cli.demo import recording


def test_recording_is_long_and_whole():
    made = recording.load()
    assert len(made) > 400
    assert [call.verb for call in made[-2:]] == ["finish", "end"]
    assert {call.verb for call in made} >= {"reasoning", "token", "tool", "tool_arguments"}
    assert json.loads(recording.text_of(made, "tool_arguments"))["path"]
    assert recording.text_of(made, "token").endswith("belong.")
