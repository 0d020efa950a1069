"""`examples/` as a user runs them: once to the end, once until it is killed.

Owns: running one, with the SDKs' own variables pointing at the replay server. Refuses: which of
them run where: each test module names those of its SDKs.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from daemon_process import PATIENCE_SECONDS, ROOT, DaemonProcess, environment, until

from adapters.answers import answer, told
from adapters.replay import Replay

__all__ = ["EXAMPLES", "check"]

EXAMPLES = ROOT / "examples"
SESSION = "chat-1"
LINES_BELOW = 30


def start(name: str, model: str, daemon: DaemonProcess, replay: Replay) -> subprocess.Popen[Any]:
    env = environment() | {
        "WALLD_SOCKET": daemon.socket_path,
        "MODEL": model,
        "OPENAI_API_KEY": "x",
        "OPENAI_BASE_URL": replay.url + "/v1",
        "ANTHROPIC_API_KEY": "x",
        "ANTHROPIC_BASE_URL": replay.url,
        "LANGSMITH_TRACING": "false",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
    }
    pipe = subprocess.PIPE
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    return subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True)


def check(
    name: str, wire: str, daemon: DaemonProcess, replay: Replay, *, tool: bool = False
) -> None:
    """Short, it ends well and leaves nothing; killed in the middle, what it had got is all there.

    tool: it is an agent with a tool, which ends with its second answer.
    """
    lines = (EXAMPLES / f"{name}.py").read_text().splitlines()
    assert len(lines) < LINES_BELOW
    process = start(name, "tool" if tool else "text", daemon, replay)
    said, complaints = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, complaints
    assert told(answer(wire, "after-tool" if tool else "text"))["text"] in said
    assert daemon.reader.recover_all(SESSION) == []

    frames = answer(wire, "text")
    place = [at for at, frame in enumerate(frames, 1) if frame.said][2]
    expected = told(frames[:place])["text"]
    process = start(name, f"text:frames:hold{place}", daemon, replay)
    try:
        until(
            lambda: [one.text for one in daemon.reader.recover_all(SESSION)] == [expected],
            f"{expected!r} of {name}",
        )
    finally:
        process.kill()
        process.communicate()
    (orphan,) = until(lambda: daemon.reader.orphans(SESSION), "an orphan")
    assert (orphan.text, orphan.status) == (expected, "crashed")
    assert daemon.reader.resolve(orphan.stream_id, orphan.last_seq)
