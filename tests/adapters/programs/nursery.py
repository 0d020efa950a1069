"""Forks programs that talk to a model: an SDK takes a second to import, a fork a millisecond.

Arguments: the module of this folder with `run(spec, tell)`. Each line of stdin is a spec (JSON with
`out`, a file); each is answered by {"pid"}, and, once that process is gone, by {"exit"}.

`tell` writes one line a call and has it in the kernel when it returns, so that it outlives SIGKILL:
what the program had got when it was killed. With `freeze` in the spec, N, it never returns from the
Nth word of the answer: the program asks its SDK for nothing more.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

Tell = Callable[..., None]


ANSWER = ("text", "reasoning", "call", "arguments")


def teller(path: str, freeze: int = 0) -> Tell:
    """tell(kind, text, call=None), or any other words of JSON."""
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    left = freeze

    def tell(*words: object) -> None:
        nonlocal left
        os.write(out, json.dumps(words, default=repr).encode() + b"\n")
        left -= words[0] in ANSWER
        if freeze and left == 0:
            os.write(out, b'["frozen"]\n')
            time.sleep(99)

    return tell


def child(run: Callable[[dict[str, Any], Tell], None], spec: dict[str, Any]) -> int:
    """Run it; its exit code."""
    tell = teller(spec["out"], spec.get("freeze", 0))
    try:
        run(spec, tell)
    except BaseException as error:
        tell("raised", type(error).__name__, traceback.format_exc())
        return 1
    return 0


def main() -> None:
    module = importlib.import_module(sys.argv[1])
    for line in sys.stdin:
        spec = json.loads(line)
        pid = os.fork()
        if pid == 0:
            sys.stdin.close()
            code = child(module.run, spec)
            os._exit(code)  # without a goodbye: what was sent is with the kernel
        print(json.dumps({"pid": pid}), flush=True)
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"exit": os.waitstatus_to_exitcode(status)}), flush=True)


if __name__ == "__main__":
    main()
