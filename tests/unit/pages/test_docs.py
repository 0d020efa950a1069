"""What the prose says is so: its code runs, its links lead somewhere, its tables are the code's.

The Python blocks of docs/integrate.md run in one program against a real daemon, once as it is and
three times in a process that is killed where it hurts. The README's program is in `test_readme.py`.
"""

from __future__ import annotations

import asyncio
import csv
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import walld_client
from walld_client import limits as client_limits
from walld_client.wire import messages as wire
from wire_peer import Daemon, Peer

from walld import limits
from walld.cli.arguments import SETTINGS, parse
from walld.daemon.settings import load
from walld.engine.flush_schedule import FlushSchedule

ROOT = Path(__file__).parents[3]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
INTEGRATE = DOCS / "integrate.md"
SESSIONS = DOCS / "sessions.md"
INTERNALS = DOCS / "internals.md"
GUARANTEES = DOCS / "guarantees.md"
FIRST_COMMANDS = DOCS / "operate.md"
OPERATE = ROOT / "walld/OPERATE.md"
ARCHITECTURE = ROOT / "walld/ARCHITECTURE.md"
FAULTS = ROOT / "walld/FAULTS.md"
TRACK_RECORD = ROOT / "walld/TRACK_RECORD.md"
CLIENT_README = ROOT / "clients/python/README.md"
ADAPTERS = ROOT / "clients/python/ADAPTERS.md"
RESULTS = ROOT / "bench/RESULTS.md"
PAGES = [
    README,
    OPERATE,
    ARCHITECTURE,
    FAULTS,
    TRACK_RECORD,
    ROOT / "walld/SECURITY.md",
    CLIENT_README,
    ADAPTERS,
    RESULTS,
    ROOT / "bench/README.md",
    ROOT / "clients/node/README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "walld/FORMAT.md",
    ROOT / "clients/PROTOCOL.md",
    *sorted(DOCS.rglob("*.md")),
]
COMMAND_LINES = (README, FIRST_COMMANDS, OPERATE)
"""Pages whose command lines are parsed."""
RUN = {INTEGRATE: "here", SESSIONS: "here", README: "test_readme.py"}
"""Pages that have Python, and where it runs; those of the clients have tests of their own."""
PIECES = ["Once ", "upon ", "a time."]


def blocks(page: Path, language: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.M | re.S)
    assert found, f"{page}: no block of {language}"
    return found


def table(page: Path, first_cell: str) -> list[list[str]]:
    """The rows of the table whose heading begins with that cell."""
    lines = page.read_text().splitlines()
    starts = [at for at, line in enumerate(lines) if line.startswith(f"| {first_cell} |")]
    assert len(starts) == 1, f"{page}: {len(starts)} tables begin with {first_cell!r}"
    rows = []
    for line in lines[starts[0] + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip()[1:-1].split("|")])
    return rows


# --- the code runs --------------------------------------------------------------------------------


class Store:
    """The application's own: a line a message, durable when `save` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def save(self, session_id: str, message: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps([session_id, message]) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def lines(self) -> list[tuple[str, dict[str, Any]]]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [(session_id, message) for session_id, message in map(json.loads, lines)]

    def messages(self, session_id: str) -> list[dict[str, Any]]:
        return list(
            {one["_key"]: one for named, one in self.lines() if named == session_id}.values()
        )

    def has(self, key: str) -> bool:
        return any(message["_key"] == key for _, message in self.lines())

    def mark(self, session_id: str, turn: str, reason: str) -> None:
        key = f"{turn}:interrupted"
        self.save(session_id, {"_key": key, "role": "system", "content": "[interrupted]"})


class DiesAfterSave(Store):
    """Killed between the application's save and `end()`."""

    def save(self, session_id: str, message: dict[str, Any]) -> None:
        super().save(session_id, message)
        os.kill(os.getpid(), signal.SIGKILL)


class DiesBeforeSave(Store):
    """Killed when nothing is saved yet."""

    def save(self, session_id: str, message: dict[str, Any]) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def tell(prompt: str) -> Iterator[str]:
    if prompt == "die before the first token":
        os.kill(os.getpid(), signal.SIGKILL)
    yield from PIECES
    if prompt == "die in the middle":
        os.kill(os.getpid(), signal.SIGKILL)


def program(page: Path, **names: object) -> dict[str, Any]:
    """All Python blocks of a page, as one program."""
    space: dict[str, Any] = dict(names)
    for block in blocks(page, "python"):
        exec(compile(block, str(page), "exec"), space)
    return space


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    running = Daemon(tmp_path)
    monkeypatch.setenv("WALLD_SOCKET", running.socket_path)
    monkeypatch.delenv("WALLD_DATA", raising=False)
    monkeypatch.delenv("WALLD_ENABLED", raising=False)
    try:
        yield running
    finally:
        running.stop()


def run_killed(path: Path, prompt: str, store: str) -> None:
    """`answer` of the page in a process of its own, which dies by SIGKILL."""
    code = f"import test_docs as t; from pathlib import Path; p = Path({str(path)!r})\n"
    code += f"s = t.program(t.INTEGRATE, model=t.tell, store=t.{store}(p))\n"
    code += f"s['answer']('chat', {prompt!r})\n"
    folders = [ROOT, ROOT / "clients/python", ROOT / "tests", Path(__file__).parent]
    env = os.environ | {"PYTHONPATH": ":".join(map(str, folders))}
    ended = subprocess.run([sys.executable, "-c", code], env=env, timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL


def test_the_readme_runs_and_a_crash_anywhere_is_harmless(tmp_path: Path, daemon: Daemon) -> None:
    path = tmp_path / "store"
    store = Store(path)
    space = program(INTEGRATE, model=tell, store=store)
    space |= program(SESSIONS, model=tell, client=space["client"])
    try:
        space["answer"]("chat", "hello")
        (saved,) = store.messages("chat")
        assert saved["content"] == "".join(PIECES)
        assert space["on_page_load"]("chat") == "nothing was cut off"

        run_killed(path, "hello", "DiesAfterSave")
        assert len(store.messages("chat")) == 2
        assert space["at_start"]() == 0, "saved, then killed before end(): nothing to add"
        assert len(store.messages("chat")) == 2

        run_killed(path, "die in the middle", "Store")
        assert space["on_page_load"]("chat") == "recovered"
        recovered = store.messages("chat")[2]
        assert recovered["content"] == "".join(PIECES)
        assert recovered["_wal_recovered"]
        assert space["at_start"]() == 0
        assert space["on_page_load"]("chat") == "nothing was cut off"

        run_killed(path, "hello", "DiesBeforeSave")
        assert space["at_start"]() == 1, "all was said and nothing saved: the order of the page"
        assert store.messages("chat")[3]["content"] == "".join(PIECES)

        run_killed(path, "die before the first token", "Store")
        assert space["on_page_load"]("chat") == "recovered"
        assert store.messages("chat")[4]["content"] == "[interrupted]", "its user sees the cut"
        assert space["at_start"]() == 0

        with space["client"].reply("live") as reply:
            reply.token("so far")
            assert space["on_page_load"]("live") == "still going: so far"
            reply.end()

        told = space["take_a_turn"]("task", "hello", "m-1")
        assert [(one["role"], one["content"]) for one in told] == [
            ("user", "hello"),
            ("assistant", "".join(PIECES)),
        ]

        asyncio.run(space["answer_async"]("async", "hello"))
        (saved,) = store.messages("async")
        assert saved["content"] == "".join(PIECES)
        assert space["at_start"]("async") == 0, "the task is its own store"
    finally:
        space["client"].close()
    assert walld_client.check(daemon.socket_path).startswith("recoverable")


def test_without_a_daemon_the_readme_says_that_it_cannot_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WALLD_SOCKET", str(tmp_path / "nobody"))
    monkeypatch.delenv("WALLD_DATA", raising=False)
    space = program(INTEGRATE, model=tell, store=Store(tmp_path / "store"))
    try:
        assert space["on_page_load"]("chat") == "cannot know now"
    finally:
        space["client"].close(0.0)


def test_the_page_of_the_client_runs(daemon: Daemon) -> None:
    program(CLIENT_README)["client"].close()


def test_the_page_of_the_client_names_every_call() -> None:
    text = CLIENT_README.read_text()
    for owner in (walld_client.Reply, walld_client.Client):
        for name in vars(owner) | vars(owner.__mro__[1]):
            if name.startswith("_") or name in ("stream_id", "session_id", "turn_id"):
                continue
            assert re.search(rf"\b{name}\b", text + INTEGRATE.read_text()), f"{name} is not there"


@pytest.mark.parametrize("page", [README, *sorted(DOCS.rglob("*.md"))], ids=lambda page: page.name)
def test_every_code_block_is_run(page: Path) -> None:
    """Python by the test that RUN names, command lines below; what is only shown is plain text."""
    languages = set(re.findall(r"^```(\w*)\n.*?^```$", page.read_text(), re.M | re.S))
    assert languages <= {"python", "sh", "console", "text"}
    assert "python" not in languages or page in RUN
    assert "sh" not in languages or page in COMMAND_LINES
    assert "console" not in languages or RUN.get(page) == "test_readme.py"


def test_the_glossary_has_each_term_once_in_order() -> None:
    terms = [row[0].casefold() for row in table(DOCS / "glossary.md", "term")]
    assert terms == sorted(set(terms))


def test_each_decision_says_what_why_and_what_was_rejected() -> None:
    folder = DOCS / "decisions"
    pages = {path.name for path in folder.glob("*.md")} - {"README.md"}
    listed = re.findall(r"\]\(([\w-]+\.md)\)", (folder / "README.md").read_text())
    assert sorted(listed) == sorted(pages)
    for name in pages:
        parts = re.findall(r"^\*\*(\w+)\.\*\*", (folder / name).read_text(), re.M)
        assert parts in (["What", "Why", "Rejected"], ["What", "Why", "Rejected", "Figure"]), name


# --- links and files ------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_page_is_in_the_site() -> None:
    (nav,) = re.findall(r"^nav:\n(.*)", (ROOT / "mkdocs.yml").read_text(), re.M | re.S)
    named = [ROOT / name for name in re.findall(r"([\w/]+[\w./-]*\.md)$", nav, re.M)]
    assert [page for page in named if not page.is_file() or named.count(page) > 1] == []
    assert set(PAGES) <= set(named)


def headings(page: Path) -> set[str]:
    """Their anchors, as a reader of Markdown makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    titles = (
        re.sub(r"[`*]|\]\([^)]*\)|\[", "", one) for one in re.findall(r"^#+ (.*)$", text, re.M)
    )
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_anchor_is_a_heading(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", page.read_text()):
        led_to = page.parent / target if target else page
        if led_to.suffix == ".md":
            assert anchor in headings(led_to), f"{page.name}: {target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_nothing_is_said_in_two_rows(page: Path) -> None:
    """Of two versions of a row that both stayed nobody knows which holds."""
    said = [line.split("|")[1] for line in page.read_text().splitlines() if line[:2] == "| "]
    long = [cell for cell in said if len(cell) > 100]
    assert not [cell for cell in set(long) if long.count(cell) > 1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_it_names_is_there(page: Path) -> None:
    for name in re.findall(
        r"`((?:[\w-]+/)+[\w.-]+\.(?:py|md|conf|service|json))`", page.read_text()
    ):
        bases = (ROOT, ROOT / "walld", ROOT / "tests", page.parent)
        assert any((base / name).exists() for base in bases), name


def test_the_targets_are_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    prose = "".join(page.read_text() for page in PAGES)
    for target in re.findall(r"(?:^    |`)make ([a-z-]+)", prose, re.M):
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_what_left_a_page_has_a_place() -> None:
    """Sentences with a number or a "never" of pages that were rewritten, and where they went."""
    lists = sorted((DOCS / "data").glob("moved_sentences_*.csv"))
    assert lists
    for path in lists:
        with path.open() as file:
            for row in csv.DictReader(file):
                assert row["sentence"]
                for place in row["where it stands now"].split("; "):
                    page = place.partition(",")[0]
                    assert page == "make help" or (ROOT / page).is_file(), f"{path.name}: {place}"


# --- the command line -----------------------------------------------------------------------------


def help_of(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit):
        parse([*command.split(), "--help"])
    return capsys.readouterr().out


def commands(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return re.findall(r"^    ([a-z-]+)\s", help_of("", capsys), re.M)


def options_of_verbs(capsys: pytest.CaptureFixture[str]) -> set[str]:
    """Of `walld session`."""
    verbs = re.findall(r"^    ([a-z]+)\s", help_of("session", capsys), re.M)
    texts = [help_of(f"session {verb}", capsys) for verb in verbs]
    return set(re.findall(r"--[a-z-]+", "".join(texts)))


def test_every_command_and_every_option_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    rows = table(OPERATE, "command")
    named = [re.match(r"`walld ([a-z-]+)", row[0]) for row in rows]
    assert [match[1] for match in named if match] == commands(capsys)
    for match, row in zip(named, rows, strict=True):
        assert match is not None
        options = set(re.findall(r"--[a-z-]+", " ".join(row)))
        assert options <= set(re.findall(r"--[a-z-]+", help_of(match[1], capsys))), row[0]
    known = set().union(*(re.findall(r"--[a-z-]+", help_of(c, capsys)) for c in commands(capsys)))
    known |= options_of_verbs(capsys)
    known |= set(re.findall(r"--[a-z-]+", (ROOT / "systemd/walld.service").read_text()))
    for page in (*COMMAND_LINES, SESSIONS, GUARANTEES, ARCHITECTURE, INTERNALS):
        prose = re.sub(r"```sh.*?```", "", page.read_text(), flags=re.S)
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", prose)) <= known, page.name


def test_every_command_line_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    pages = COMMAND_LINES
    lines = [line for page in pages for block in blocks(page, "sh") for line in block.splitlines()]
    for page in (*pages, INTEGRATE, SESSIONS, GUARANTEES):
        lines += re.findall(r"`(walld [a-z-]+ [^`|\[]*)`", page.read_text())
    for line in (line for line in lines if line.startswith("walld ")):
        parse(shlex.split(line.removesuffix(" &"))[1:])
    for line in (line for line in lines if line.startswith("cp ")):
        for part in line.partition("&&")[0].split()[1:-1]:
            assert (ROOT / part).exists(), part


def test_the_options_of_serve_are_all_there_with_their_defaults() -> None:
    settings = load({"data": "/nowhere"}, {}, 0)
    rows = {row[0].strip("`"): row for row in table(OPERATE, "option")}
    keys = {"--" + key.replace("_", "-"): key for key in SETTINGS}
    assert set(rows) == {*keys, "--config"}
    for option, key in keys.items():
        shown, default = settings.shown(key), rows[option][1]
        if key not in ("data", "socket"):
            assert default.startswith(f"`{shown}`") if shown else default == "", option


def test_exit_codes_are_those_of_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    known = set(re.findall(r"\b\d+\b", help_of("", capsys).rpartition("Exit codes:")[2]))
    for row in table(OPERATE, "command"):
        codes = set(re.findall(r"\b\d+\b", row[2]))
        assert codes, row[0]
        assert codes <= known, row[0]


# --- metrics --------------------------------------------------------------------------------------


def test_every_metric_and_every_field_of_the_status_is_there(daemon: Daemon) -> None:
    def asked(*options: str) -> str:
        command = [sys.executable, "-m", "walld", "status", "--socket", daemon.socket_path]
        env = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'clients/python'}"}
        return subprocess.run(
            [*command, *options], env=env, capture_output=True, text=True, check=True
        ).stdout

    known = set(re.findall(r"\bwalld_\w+", asked("--prometheus")))
    for page in (README, OPERATE, ARCHITECTURE, *sorted(DOCS.rglob("*.md"))):
        named = set(re.findall(r"\bwalld_(?!client)\w+", page.read_text()))
        assert named <= known, page.name
    status = json.loads(asked("--json"))
    shown = {*status, *(f"start.{name}" for name in status["start"])}
    for name in ("state", "trouble", "wal_size_bytes", "wal_live_bytes", "reclaim_lag_seconds"):
        assert f"`{name}" in OPERATE.read_text()
        assert name in shown
    for name in ("lost_acked", "start.torn", "start.corrupt"):
        assert f"| `{name}` above 0 |" in OPERATE.read_text()
        assert name in shown


def test_the_alerts_are_rules(tmp_path: Path) -> None:
    (rules,) = blocks(OPERATE, "yaml")
    assert rules.count("- alert:") == 3
    path = tmp_path / "rules.yml"
    path.write_text(rules)
    try:
        subprocess.run(["promtool", "check", "rules", path], check=True, capture_output=True)
    except FileNotFoundError:
        assert "expr: increase(" in rules


# --- limits ---------------------------------------------------------------------------------------


def test_every_size_in_the_prose_is_a_size_of_the_code() -> None:
    known = {value for name, value in [*vars(limits).items(), *vars(client_limits).items()]
             if name.isupper() and "BYTES" in name}  # fmt: skip
    known |= {4096, 64 * 1024, 128 * 1024}  # per stream (S2), a merged run, a carried record
    for page in (README, INTEGRATE, OPERATE, ARCHITECTURE, INTERNALS, FAULTS, CLIENT_README):
        for amount, unit in re.findall(r"([\d,]+) (KiB|MiB)", page.read_text()):
            size = int(amount.replace(",", "")) * {"KiB": 1024, "MiB": 1024**2}[unit]
            assert size in known, f"{page.name}: {amount} {unit}"


# --- tests that pages name ----------------------------------------------------------------------


def test_the_twelve_promises_are_stated_on_both_pages() -> None:
    twelve = [f"P{number}" for number in range(1, 13)]
    assert [row[0] for row in table(ARCHITECTURE, "promise")] == twelve
    text = GUARANTEES.read_text()
    assert re.findall(r"^\| (P\d+) \|", text, re.M) == twelve


# --- what writing the prose has found -------------------------------------------------------------


@pytest.mark.parametrize("backend", ["asyncio", "asyncio+uvloop", "trio"])
def test_the_reclaim_lag_is_in_loop_time_on_each_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    """A released reply beside a live one: it is not due yet, so the lag is 0, on every clock."""
    monkeypatch.setenv("WALLD_BACKEND", backend)
    running = Daemon(tmp_path)
    try:
        client = walld_client.connect(running.socket_path)
        live = client.reply("live")
        live.token("x" * 100)
        with client.reply("done") as reply:
            reply.token("x" * 100)
            assert reply.drain(60, level="synced")
            reply.end()
        assert live.drain(60, level="synced")
        with Peer(running, "query") as peer:
            status = msgspec.msgpack.decode(peer.ask(wire.Status(1)))
        assert status["backend"] == backend
        assert status["wal_live_bytes"] > 0
        assert status["reclaim_lag_seconds"] == 0
        client.close()
    finally:
        running.stop()


def test_a_flush_under_way_is_in_the_oldest_age() -> None:
    """What is being written counts as waiting until its write returns, so a hang is seen."""
    commit = FlushSchedule(3000, None)
    commit.offered(1.0)
    oldest = commit.flush_begun()
    commit.offered(5.0)
    assert commit.oldest == oldest == 1.0
    commit.flush_ended()
    assert commit.oldest == 5.0
