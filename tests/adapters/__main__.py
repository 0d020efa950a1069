"""`python -m adapters [GROUP...]`: each SDK from the registry, in a venv of its own, and its tests.

Owns: the groups, their venvs, and a table of what was installed and what was found. Refuses: the
tests themselves.

A venv each, because the SDKs do not agree on their dependencies: litellm holds openai back, and
that would hold the others back. Requirements are floors; what the registry has is what is tested,
or with `--oldest` (of make: `GROUP=--oldest`) the floors themselves of what the extras name, and
the newest of the rest that goes with them. An SDK that cannot be installed is said and fails
nothing, unless none can be, or CI is set: that is a registry's trouble, or a conflict among
packages of others, and both are seen in the table.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
VENVS = ROOT / ".venv-adapters"
CLIENT = ROOT / "clients/python"
INSTALL_SECONDS_MAX = 600
AT_ONCE = 2
"""Groups; what one prints comes when it is through."""

_LOST = ("FAILED ", "ERROR ")
"""How pytest begins the line of a test that failed; they are said once more at the end."""


class Group(NamedTuple):
    """SDKs that live in one venv.

    extras: of walld-client, whose floors they are. shown: packages whose versions the table has.
    needs: what only the tests want.
    """

    extras: str
    shown: tuple[str, ...]
    tests: tuple[str, ...]
    needs: tuple[str, ...] = ()


GROUPS = {
    "openai+anthropic": Group(
        "httpx2,openai,anthropic",
        ("openai", "anthropic", "httpx2"),
        (
            "wires/test_openai_anthropic.py",
            "wires/test_promises.py",
            "wires/test_tee.py",
            "wires/test_tee_kind.py",
            "wires/test_httpx2_streams.py",
            "wires/test_odd_streams.py",
            "wires/test_any_answer.py",
            "wires/test_told_again.py",
            "wires/test_goes_on.py",
            "wires/test_goes_on_in_bytes.py",
            "wires/test_spoken.py",
            "wires/test_tee_at_once.py",
            "wires/test_overhead.py",
        ),
    ),
    "langchain": Group(
        "langchain",
        ("langchain-core", "langchain", "langgraph", "langchain-openai", "langchain-anthropic"),
        (
            "langchain/test_langchain.py",
            "langchain/test_langchain_blocks.py",
            "langchain/test_langchain_calls.py",
            "langchain/test_langchain_events.py",
            "langchain/test_langchain_graphs.py",
            "langchain/test_langchain_interrupts.py",
            "langchain/test_langchain_left.py",
            "langchain/test_langchain_runs.py",
            "langchain/test_langchain_environment.py",
            "wires/test_overhead.py",
        ),
        (
            "langchain>=1.0",
            "langchain-openai>=1.0",
            "langchain-anthropic>=1.0",
            "hatchling>=1.21",  # a wheel of the client is made and installed
        ),
    ),
    "langgraph": Group(
        "langchain,langgraph",
        ("langgraph", "langgraph-checkpoint", "langgraph-checkpoint-conformance"),
        (
            "langchain/test_langgraph.py",
            "langchain/test_langgraph_writes.py",
            "langchain/test_langgraph_travel.py",
            "langchain/test_langgraph_any.py",
            "langchain/test_langgraph_tasks.py",
        ),
        ("langgraph>=1.2", "langgraph-checkpoint-conformance>=0.0.2", "langchain-openai>=1.0"),
    ),
    "pydantic-ai": Group(
        "pydantic-ai",
        ("pydantic-ai-slim", "openai", "anthropic"),
        (
            "agents/test_pydantic_ai.py",
            "agents/test_pydantic_ai_blocks.py",
            "agents/test_pydantic_ai_ends.py",
            "agents/test_pydantic_ai_store.py",
            "agents/test_pydantic_ai_any.py",
            "wires/test_overhead.py",
        ),
        ("pydantic-ai-slim[openai,anthropic]",),
    ),
    "openai-agents": Group(
        "openai-agents",
        ("openai-agents", "openai"),
        (
            "agents/test_openai_agents.py",
            "agents/test_openai_agents_runs.py",
            "agents/test_openai_agents_any.py",
            "wires/test_overhead.py",
        ),
    ),
    "litellm": Group(
        "litellm", ("litellm", "openai"), ("wires/test_litellm.py", "wires/test_overhead.py")
    ),
    # No SDKs: they fork what they have imported. uWSGI is compiled here.
    "servers": Group(
        "",
        ("uwsgi", "gunicorn"),
        ("test_forking_servers.py",),
        ("uwsgi>=2.0.20", "gunicorn>=20"),
    ),
}


def python_of(name: str, oldest: bool = False) -> Path:
    return VENVS / (("oldest-" if oldest else "") + name.replace("+", "-")) / "bin/python"


def floors_of(requirements: Iterable[str]) -> list[str]:
    """Constraints of pip that hold each requirement at its floor: `a[b]>=1; c` is `a==1; c`.

    Raises ValueError for a requirement that has no floor.
    """
    floors = []
    for one in requirements:
        found = re.fullmatch(r"([\w.-]+)(?:\[.*?\])?\s*>=\s*([\w.]+)(\s*;.*)?", one)
        if found is None:
            raise ValueError(f"{one!r} has no floor: an extra's requirement is NAME>=VERSION")
        floors.append(f"{found[1]}=={found[2]}{found[3] or ''}")
    return floors


def wanted_by(group: Group) -> set[str]:
    """The requirements of its extras, as the client's pyproject.toml has them."""
    project = tomllib.loads((CLIENT / "pyproject.toml").read_text())["project"]
    extras = filter(None, group.extras.split(","))
    return {one for extra in extras for one in project["optional-dependencies"][extra]}


def install(name: str, group: Group, oldest: bool = False) -> str | None:
    """Make the venv anew. What went wrong, or None."""
    python = python_of(name, oldest)
    subprocess.run([sys.executable, "-m", "venv", "--clear", python.parents[1]], check=True)
    client = f"{CLIENT}[{group.extras}]" if group.extras else str(CLIENT)
    wanted = ["-e", client, "-e", str(ROOT), "pytest>=8", *group.needs]
    # Most modules of an SDK are never imported: compiling them all took a third of the time.
    command = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    command += ["install", "--no-compile", *wanted]
    if oldest:
        constraints = python.parents[1] / "floors.txt"
        constraints.write_text("".join(f"{one}\n" for one in floors_of(sorted(wanted_by(group)))))
        command += ["--constraint", constraints]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        return f"not installed within {INSTALL_SECONDS_MAX} s"
    if done.returncode == 0:
        return None
    return trouble_of(done.stderr) or f"pip ended with {done.returncode}"


def trouble_of(stderr: str) -> str | None:
    """What pip could not do, in a line; it names every version that the registry has."""
    said = [line for line in stderr.splitlines() if line.startswith("ERROR")]
    return re.sub(r" \(from versions: .*\)", "", said[0]) if said else None


def versions(python: Path, group: Group) -> str:
    """What the registry gave, as it is installed."""
    found = importlib.metadata.distributions(
        path=[str(path) for path in python.parents[1].glob("lib/python*/site-packages")]
    )
    have = {one.name.lower().replace("_", "-"): one.version for one in found}
    return ", ".join(f"{one} {have.get(one, '?')}" for one in group.shown)


def run_tests(python: Path, group: Group, more: list[str]) -> tuple[int, str]:
    """pytest's exit code, and what it said."""
    files = [str(ROOT / "tests/adapters" / one) for one in group.tests]
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files, *more]
    env = os.environ | {"PYTHONPATH": f"{ROOT}:{CLIENT}"}
    done = subprocess.run(
        command, env=env, cwd=ROOT, check=False, text=True, errors="replace",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return done.returncode, done.stdout


def measure(python: Path, name: str) -> int:
    """The exit code of `adapters.overhead` in its venv."""
    env = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}:{CLIENT}"}
    env["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    command = [python, "-m", "adapters.overhead", name]
    return subprocess.run(command, env=env, cwd=ROOT, check=False).returncode


class Tried(NamedTuple):
    """What came of a group. row: its name, a word for it, what was installed."""

    row: tuple[str, str, str]
    said: str = ""
    failed: bool = False


def tried(options: argparse.Namespace, name: str) -> Tried:
    """Install a group, unless it is there and to be kept, and run its tests, or measure it."""
    group = GROUPS[name]
    begun = time.monotonic()
    python = python_of(name, options.oldest)
    there = options.keep and python.exists()
    trouble = None if there else install(name, group, options.oldest)
    if trouble is not None:
        return Tried((name, "NOT INSTALLED", trouble))
    said = ""
    if options.overhead:
        # LangGraph's models are LangChain's, and servers have none.
        code = measure(python, name) if "wires/test_overhead.py" in group.tests else 0
    else:
        code, said = run_tests(python, group, options.pytest.split())
    word = "passed" if code == 0 else f"FAILED ({code})"
    took = f"{time.monotonic() - begun:.0f} s"
    return Tried((name, word, f"{versions(python, group)}; {took}"), said, code != 0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m adapters", description=__doc__.split("\n")[0])
    parser.add_argument("group", nargs="*", help=f"of {', '.join(GROUPS)} (all)")
    parser.add_argument("--keep", action="store_true", help="use the venvs that are there")
    parser.add_argument(
        "--oldest", action="store_true", help="the floors of the extras, not the newest"
    )
    parser.add_argument("--overhead", action="store_true", help="measure a chunk, test nothing")
    parser.add_argument("--pytest", default="", help="more arguments of pytest")
    options = parser.parse_args()
    if unknown := set(options.group) - set(GROUPS):
        parser.error(f"no such group: {', '.join(unknown)}; there are {', '.join(GROUPS)}")
    rows, lost, failed = [], list[str](), False
    # Most of a test is waiting; a measurement is alone.
    with ThreadPoolExecutor(1 if options.overhead else AT_ONCE) as pool:
        for found in pool.map(partial(tried, options), options.group or GROUPS):
            print(found.said, end="", flush=True)
            rows.append(found.row)
            failed = failed or found.failed
            lost += [line for line in found.said.splitlines() if line.startswith(_LOST)]
    print("\nadapters, each in a venv of its own:")
    for name, what, about in rows:
        print(f"  {name:18} {what:14} {about}")
    print("".join(f"{line}\n" for line in lost), end="")
    lacking = [name for name, what, _ in rows if what == "NOT INSTALLED"]
    none = len(lacking) == len(rows)
    if none:
        print("no SDK could be installed: nothing was tested", file=sys.stderr)
    elif lacking and os.environ.get("CI"):
        print(f"not tested, and CI is set: {', '.join(lacking)}", file=sys.stderr)
        failed = True
    return 1 if failed or none else 0


if __name__ == "__main__":
    sys.exit(main())
