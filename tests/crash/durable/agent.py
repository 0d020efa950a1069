"""A program that works in a durable loop: what it does next is in the messages, and nowhere else.

Spec (JSON, the first argument): see `cases.py`. It begins with `submit` or, where the session is
there already, with `resume()`: it looks at what the gate lists, says what it saw and asks again.
Then its model acts on `session.messages(format)` alone, until it answers.

Each line of stdout is an object with one field: `did`, a step that is done; `sent`, what a provider
was sent; `gate`, what the gate said; `resumed`, the calls of the new turn; `done`, the answer.
Behind the step `stop` it waits for SIGKILL.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import walld_client

TOOL, ARGUMENTS, RESULT = "deploy", {"env": "prod", "files": ["a", "b"]}, "deployed!"
QUESTION = "Deploy it, once."
ROUNDS_MAX = 6


def tell(**fact: Any) -> None:
    print(json.dumps(fact), flush=True)


class Loop:
    """One life of the program."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.client = walld_client.connect(spec["socket"], timeout=30)
        self.session = self.client.session(spec["session"])
        self.root = Path(spec["root"])
        self.books_journal = spec["booking"] != "reply alone"
        self.turn: Any = None
        self.reply: Any = None
        self.calls = 0
        self.settled = set[tuple[str, str, str]]()

    def at(self, step: str) -> None:
        tell(did=step)
        while step == self.spec["stop"]:
            signal.pause()

    # --- where it begins ---

    def begin(self) -> bool:
        """Submit, or resume. False: the answer is there already."""
        saved = Path(self.spec["saved"])  # the application's own store
        if not saved.exists():
            saved.write_text(QUESTION)
            self.at("user saved")
        while True:
            gate = self.session.resume_check(workspace=self.root)
            tell(gate=gate)
            if gate is None:
                promise = {"calls": "journal"} if self.spec["promises"] else {}
                self.turn = self.session.submit(QUESTION, message_id="m", **promise)
                return True
            try:
                self.turn = self.session.resume(workspace=self.root, checked=self.looked(gate))
            except walld_client.Refused as refused:
                if refused.code != "nothing_to_resume":
                    raise
                return False
            except walld_client.Blocked as blocked:
                self.settle(blocked.reasons)
                continue
            tell(resumed=self.turn.calls)
            return True

    def happened(self, call: dict[str, Any]) -> str:
        """What somebody sees who looks at the other side."""
        done = Path(self.spec["effects"]).read_text().splitlines()
        return "ran" if f"{call['turn']} {call['call_id']}" in done else "did_not_run"

    def looked(self, gate: dict[str, Any]) -> dict[str, str]:
        if self.spec["answer"] != "look":
            return {}
        asked = [one for one in gate["calls"] if one["may"] == "check_then_run"]
        return {one["call_id"]: self.happened(one) for one in asked}

    def settle(self, reasons: list[dict[str, Any]]) -> None:
        """What a person says of what the gate asks."""
        for reason in reasons:
            if reason["code"] in ("at_work", "owner_unseen"):
                time.sleep(0.005)  # of who was killed just now the kernel has not told everybody
            elif reason["code"].startswith("workspace_"):
                self.session.checkpoint_workspace(self.root, [self.spec["file"]])
            else:
                self.settle_call(reason)

    def settle_call(self, reason: dict[str, Any]) -> None:
        said = {"look": self.happened(reason), "deny": "denied", "grant": "granted"}
        if reason["why"] == "approval_pending":
            said["look"] = "granted"  # it never ran
        word = said[self.spec["answer"]]
        call = (reason["turn"], reason["call_id"])
        if (*call, "denied") in self.settled:
            word = said["look"]  # that it may not run says nothing of whether it did
        assert (*call, word) not in self.settled, f"asked again of what was settled: {reason}"
        self.settled.add((*call, word))
        self.session.settle(reason["call_id"], word, turn=reason["turn"], by="anna")

    # --- the loop ---

    def run(self) -> str:
        self.at("submit")
        self.turn.worker_started()
        self.session.checkpoint_workspace(self.root, [self.spec["file"]])
        self.at("checkpoint")
        if self.spec["runs_directly"] and self.books_journal:
            for call in self.turn.calls:
                if call["may"] == "run":
                    self.call(f"again_{call['call_id']}")
        for _ in range(ROUNDS_MAX):
            sent = self.session.messages(self.spec["format"])
            tell(sent=sent)
            self.at("request sent")
            wanted = wants(sent) if self.spec["reads"] or self.calls else None
            self.say(
                "I " if wanted is None else "All ", ("deploy it." if wanted is None else wanted)
            )
            if wanted is not None:
                return self.answer(wanted)
            self.calls += 1
            self.call(f"call_{self.calls}")  # counted anew in each turn, as models do
            if self.reply is not None:
                self.reply.step()
        raise AssertionError(f"no answer in {ROUNDS_MAX} rounds: {sent}")

    def say(self, *tokens: str) -> None:
        self.text = "".join(tokens)
        if self.spec["booking"] != "journal" and self.reply is None:
            self.reply = self.turn.reply()
            self.at("reply opened")
        for token, step in zip(tokens, ("first token", "last token"), strict=True):
            if self.reply is not None:
                self.reply.token(token)
            self.at(step)

    def answer(self, text: str) -> str:
        if self.reply is not None:
            self.reply.end("stop")
        else:
            self.session.message("assistant", self.text, turn=self.turn.turn_id)
        self.at("assistant entry")
        self.turn.completed()
        self.at("completed")
        return text

    def call(self, call_id: str) -> None:
        risk = {"side_effect": self.spec["effect"], "resume_policy": self.spec["policy"]}
        if self.spec["idempotency"] != "unsafe":
            risk["idempotency"] = self.spec["idempotency"]
        if self.reply is not None:
            info = {} if self.books_journal else risk
            self.reply.tool(TOOL, ARGUMENTS, call_id=call_id, **info)
            self.at("call said")
            self.reply.finish("tool_use")
            if self.spec["booking"] == "a reply each step":
                self.reply.end("tool_use")
                self.reply = None
                self.at("assistant entry")
        if self.books_journal:
            self.started(call_id, risk)
        with open(self.spec["effects"], "a") as effects:
            effects.write(f"{self.turn.turn_id} {call_id}\n")
        if self.spec["effect"] == "workspace-write":
            with open(self.root / self.spec["file"], "a") as written:
                written.write(f"{call_id}\n")
        self.at("effect")
        if self.books_journal:
            self.turn.tool_finished(call_id, RESULT)
            self.at("tool_finished")
            self.turn.observation(call_id, RESULT)
            self.at("observation")
        if self.reply is not None:
            self.reply.tool_result(RESULT, call_id=call_id)
            self.at("tool_result")

    def started(self, call_id: str, risk: dict[str, str]) -> None:
        asks = self.spec["asks"] or self.spec["policy"] == "require-user-confirmation"
        self.turn.intent(TOOL, ARGUMENTS, call_id=call_id, **risk)
        self.at("intent")
        self.turn.decision(call_id, "ask" if asks else "allow")
        self.at("decision")
        if asks:
            self.turn.approval(call_id, "asked")
            self.at("approval asked")
            self.turn.approval(call_id, "granted", by="anna")
            self.at("granted")
        self.turn.tool_started(call_id)
        self.at("tool_started")


# --- the model ------------------------------------------------------------------------------------


def wants(sent: list[dict[str, Any]]) -> str | None:
    """Its answer; None: the call. It does again what, by these messages, was not done."""
    told = [result for message in sent for result in results(message)]
    assert not any("still running" in one for one in told), sent
    if any(one == RESULT or "ran; its result" in one for one in told):
        return "is done."
    if any("may have taken effect" in one or "may have run" in one for one in told):
        return "may be done: look at it."
    return "is refused." if any("rejected" in one for one in told) else None


def results(message: dict[str, Any]) -> list[str]:
    """The words of tool results in a message of any format."""
    if message["role"] == "tool":
        return [message["content"]]
    found = []
    if message["role"] == "assistant":
        calls = [one for one in message.get("tool_calls", ()) if "superseded_by" not in one]
        found += [one["result"] for one in calls if one.get("result") is not None]
    if isinstance(message["content"], list):
        blocks = [one for one in message["content"] if one["type"] == "tool_result"]
        for block in blocks:
            content = block["content"]
            found += [content] if isinstance(content, str) else [one["text"] for one in content]
    return found


def main() -> None:
    loop = Loop(json.loads(sys.argv[1]))
    answer = loop.run() if loop.begin() else "is there."
    loop.client.close()
    tell(done=answer)


if __name__ == "__main__":
    main()
