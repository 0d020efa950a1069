"""Makes agents fast: imports all they need once, then forks one for each line (a streamer's spec).

Says the child's pid at once, and the signal or code it ended with when it has.
"""

from __future__ import annotations

import json
import os
import sys

from streamer import stream


def main() -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            stream(json.loads(line))
            sys.exit()  # as an agent ends: what runs at exit runs
        print(json.dumps({"pid": pid}), flush=True)
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"exit": os.waitstatus_to_exitcode(status)}), flush=True)


if __name__ == "__main__":
    main()
