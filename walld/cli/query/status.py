"""`walld status`: exit 0 whenever the daemon answers, whatever it says of itself; 1 if not.

Owns: how the answer is printed. Refuses: judging it; `state` in it is the daemon's own word.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

import msgspec
from walld_client.wire import messages as wire

from walld.cli.client import Daemon
from walld.cli.exit_codes import DONE
from walld.cli.show import as_json
from walld.escape import escaped_line

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Prints the status as text, JSON, or the metrics."""
    with Daemon(options.socket, options.timeout) as daemon:
        if options.prometheus:
            text = msgspec.msgpack.decode(daemon.ask(wire.Metrics(daemon.next_id())), type=str)
            for line in text.splitlines():
                print(escaped_line(line))
            return DONE
        answer = daemon.ask(wire.Status(daemon.next_id()))
    status = msgspec.msgpack.decode(answer, type=dict[str, object])
    if options.json:
        print(as_json(status))
        return DONE
    rows = list(_flat(status))
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        print(f"{name:<{width + 2}}{value}")
    return DONE


def _flat(values: Mapping[str, object], above: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        name = above + escaped_line(str(key))
        if isinstance(value, dict):
            yield from _flat(value, name + ".")
        elif isinstance(value, list):
            yield name, ", ".join(escaped_line(str(entry)) for entry in value) or "-"
        elif isinstance(value, bool) or value is None:
            yield name, {True: "yes", False: "no", None: "-"}[value]
        elif isinstance(value, float):
            yield name, f"{value:.6g}"
        else:
            yield name, escaped_line(str(value)) or "-"
