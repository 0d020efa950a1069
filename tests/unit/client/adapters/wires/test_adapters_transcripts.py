"""Words that come as something else than text: of audio, and in completions of the old kind."""

from __future__ import annotations

from typing import Any

import pytest
from unit.client.adapters.wires.test_adapters_folds import chunk, event, fold
from unit.client.adapters.wires.test_adapters_odd_bodies import DONE, recorded

SPOKEN = {"transcript": True}


def audio(**about: Any) -> dict[str, Any]:
    return chunk({"audio": about})


def test_the_transcript_of_an_audio_of_chat_is_the_answer() -> None:
    said, folded = fold(
        [
            chunk(
                {"role": "assistant", "content": None, "audio": {"id": "a", "transcript": "It "}}
            ),
            audio(transcript="rains."),
            audio(data="AAAA"),
            chunk({}, "stop"),
        ]
    )
    assert said == [
        ("token", "It ", SPOKEN),
        ("token", "rains.", SPOKEN),
        ("finish", "stop"),
    ]
    assert folded.may_end_here()


def test_audio_of_chat_may_end_by_what_is_said_of_its_age_alone() -> None:
    said = recorded(audio(id="a", transcript="So."), audio(expires_at=1790000000), DONE)
    assert said == [("token", "So.", SPOKEN), ("end",)]
    _, folded = fold([audio(id="a", transcript="So."), audio(expires_at=1790000000)])
    assert folded.may_end_here(), "no SDK hands [DONE] on"
    _, folded = fold([audio(id="a", transcript="So.")])
    assert not folded.may_end_here()


def test_audio_without_any_word_is_said_to_be_missing() -> None:
    said = recorded(audio(id="a"), audio(data="AAAA"), audio(data="BBBB"), chunk({}, "stop"), DONE)
    missing = {"id": "a", "base64_chars": 8}
    assert said == [("event", "audio_not_kept", missing), ("finish", "stop"), ("end",)]


def test_audio_of_another_choice_stands_beside() -> None:
    said, _ = fold([chunk({"audio": {"transcript": "other"}}, index=1)])
    assert said == [("event", "choice", {"index": 1, "transcript": "other"})]


@pytest.mark.parametrize(
    "kind",
    ["audio.transcript.delta", "audio_transcript.delta", "output_audio_transcript.delta"],
)
def test_the_transcript_of_a_response_is_the_answer(kind: str) -> None:
    over = event(kind.replace(".delta", ".done"), transcript="It rains.")
    said, _ = fold([event(kind, delta="It "), event(kind, delta="rains."), over])
    assert said == [("token", "It ", SPOKEN), ("token", "rains.", SPOKEN)]
    said, _ = fold([over])
    assert said == [("token", "It rains.", SPOKEN)]


def test_the_transcript_of_an_item_that_is_done() -> None:
    part = {"type": "output_audio", "data": "AAAA", "transcript": "It rains."}
    item = {"type": "message", "id": "m", "content": [part]}
    done = event("output_item.done", output_index=0, item=item)
    assert fold([done])[0] == [("token", "It rains.", SPOKEN)]
    spoken = [
        event("audio.delta", delta="AAAA"),
        event("audio.transcript.delta", delta="It rains."),
    ]
    assert fold([*spoken, done])[0] == [("token", "It rains.", SPOKEN)]


# --- completions of before there were chats -------------------------------------------------------


def completion(text: object, reason: str | None = None, index: int = 0) -> dict[str, Any]:
    choice = {"index": index, "text": text, "finish_reason": reason, "logprobs": None}
    return {"id": "c", "object": "text_completion", "model": "m", "choices": [choice]}


def test_a_completion_is_an_answer() -> None:
    usage = {"id": "c", "object": "text_completion", "choices": [], "usage": {"prompt_tokens": 1}}
    said = recorded(completion("On"), completion("ce."), completion("", "stop"), usage, DONE)
    assert said == [("token", "On"), ("token", "ce."), ("finish", "stop"), ("end",)]


def test_a_completion_whose_server_says_nothing_of_what_it_is() -> None:
    one = completion("Once.", "stop")
    del one["object"]
    assert recorded(one, DONE) == [("token", "Once."), ("finish", "stop"), ("end",)]


def test_a_completion_that_is_cut() -> None:
    said = recorded(completion("On"), DONE, closed=False)
    assert said[:2] == [("token", "On"), ("end",)], "[DONE] is its end"
    _, folded = fold([completion("On")])
    assert not folded.may_end_here()
    said = recorded(completion("On"), completion("", "length"), DONE)
    assert ("finish", "length") in said


def test_further_choices_of_a_completion_stand_beside() -> None:
    said, folded = fold([completion("a", "stop"), completion("b", index=1)])
    assert said == [
        ("token", "a"),
        ("finish", "stop"),
        ("event", "choice", {"index": 1, "content": "b"}),
    ]
    assert not folded.may_end_here()


def test_an_error_in_a_completion() -> None:
    said = recorded(completion("On"), {"error": {"message": "boom", "type": "t"}})
    assert said[-1] == ("error", "boom", {"kind": "t", "detail": {"type": "t"}})


def test_a_completion_of_anthropic() -> None:
    def one(text: str, reason: str | None = None) -> dict[str, Any]:
        return {
            "type": "completion",
            "id": "c",
            "completion": text,
            "stop_reason": reason,
            "model": "m",
        }

    said, folded = fold([one("On"), one("ce."), one("", "stop_sequence")])
    assert said == [("token", "On"), ("token", "ce."), ("finish", "stop_sequence")]
    assert folded.is_ended
    assert not fold([one("On")])[1].may_end_here()
