"""The example programs, killed at each of their lines: the next start ends what they had begun.

How long they are is a promise, too: statements as Python's parser counts them, imports included.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agents.process import Obedient
from daemon_process import DaemonProcess

EXAMPLES = Path(__file__).parents[3] / "examples/programs"
STATEMENTS_MAX = {"cli_agent_event_log": 20, "web_ui_turn_journal": 25, "web_ui_in_flight": 12}
LINES_MAX = 60
TOLD = "All deployed!", "All This call ran; its result was not recorded."
LOAD = """
import json, os, signal, sys, types
os.environ["WALLD_SOCKET"], FILE, FOLDER = SOCKET, EXAMPLE, HOME
example = types.ModuleType("example")
exec(compile(open(FILE).read(), FILE, "exec"), example.__dict__)

def killed_at(count):
    def line(frame, event, _):
        nonlocal count
        count -= event == "line"
        if not count:
            os.kill(os.getpid(), signal.SIGKILL)
        return line
    sys.settrace(lambda frame, *_: line if frame.f_code.co_filename == FILE else None)

class Store:
    '''A file a session: {key: message}, in the order of their first save.'''
    def rows(self, session_id):
        path = f"{FOLDER}/{session_id}"
        return json.load(open(path)) if os.path.exists(path) else {}
    def has(self, key):
        return any(key in self.rows(name) for name in os.listdir(FOLDER))
    def save(self, session_id, message):
        rows = self.rows(session_id) | {message["_key"]: message["content"]}
        with open(f"{FOLDER}/.new", "w") as file:
            json.dump(rows, file)
        os.rename(file.name, f"{FOLDER}/{session_id}")
    def mark(self, session_id, turn, reason):
        self.save(session_id, {"_key": f"{turn}:interrupted", "content": "[interrupted]"})
"""
CLI_AGENT = """
import time, walld_client

def model(messages, reply):
    given = [one["content"] for one in messages if one["role"] == "tool"]
    given = [one for one in given if one != "This call did not run."]
    for piece in ("All ", given[-1]) if given else ("I ", "deploy."):
        reply.token(piece)
    if given:
        return []
    reply.tool("deploy", {"to": "prod"}, call_id="c1")
    return [("c1", "deploy", {"to": "prod"})]

def deploy(session_id):
    def run(to):
        with open(f"{FOLDER}/{session_id}", "a") as file:
            file.write("deployed\\n")
        return "deployed!"
    run.risk = {"side_effect": "external-write", "resume_policy": "rerun-after-check"}
    return {"deploy": run}

def happened(session_id):
    return "ran" if os.path.exists(f"{FOLDER}/{session_id}") else "did_not_run"

def goes_on(session_id):
    '''A person answers what the gate asks; what was not yet asked is asked now.'''
    while True:
        prompt = None
        try:
            return example.converse(session_id, None, model, deploy(session_id))
        except walld_client.Blocked as blocked:
            for one in blocked.reasons:
                if one["code"] == "at_work":
                    time.sleep(0.01)
                else:
                    session = example.client.session(session_id)
                    session.settle(one["call_id"], happened(session_id), turn=one["turn"])
        except walld_client.Refused as refused:
            if refused.code != "nothing_to_resume":
                raise
            if example.client.session(session_id).messages() is None:
                return example.converse(session_id, "Deploy.", model, deploy(session_id))
            return example.client.session(session_id).messages(last=1)[-1]["content"]
"""


@pytest.mark.parametrize("name", STATEMENTS_MAX)
def test_statements(name: str) -> None:
    tree = ast.parse((EXAMPLES / f"{name}.py").read_text())
    found = sum(isinstance(node, ast.stmt) for node in ast.walk(tree))
    assert found <= STATEMENTS_MAX[name]


Lives = Callable[..., Iterator[tuple[str, Obedient]]]


@pytest.fixture
def lives(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient], tmp_path: Path
) -> Iterator[Lives]:
    """For each line of an example: a session's id, and an agent that is to be killed there."""
    folder = tmp_path / "store"
    folder.mkdir()

    def loaded(name: str, more: str) -> Obedient:
        agent = make_agent(daemon)
        values = str(daemon.socket_path), str(EXAMPLES / f"{name}.py"), str(folder)
        agent.do(f"SOCKET, EXAMPLE, HOME = {values!r}")
        agent.do(LOAD)
        agent.do(more)
        return agent

    def each(name: str, run: str, more: str = "store = Store()") -> Iterator[tuple[str, Obedient]]:
        survivor = loaded(name, more)
        for line in range(1, LINES_MAX):
            session_id = f"{name}-{line}"
            agent = loaded(name, more)
            agent.begin(f"session_id = {session_id!r}\nkilled_at({line})\n{run}\n'whole'")
            assert agent.process.stdout is not None
            is_whole = bool(agent.process.stdout.readline())
            agent.kill()
            yield session_id, survivor
            if is_whole:
                assert line > 10
                return
        raise AssertionError(f"{name} passes more than {LINES_MAX} lines")

    return each


def test_the_cli_agent_deploys_once(lives: Lives) -> None:
    run = "example.converse(session_id, 'Deploy.', model, deploy(session_id))"
    for session_id, survivor in lives("cli_agent_event_log", run, CLI_AGENT):
        assert survivor.do(f"goes_on({session_id!r})") in TOLD, session_id
        assert survivor.do(f"open(f'{{FOLDER}}/{session_id}').read()") == "deployed\n", session_id


def test_no_question_of_the_web_ui_is_lost(lives: Lives, daemon: DaemonProcess) -> None:
    run = """
turn = example.post(store, session_id, session_id + "m", "Why?")
example.work(store, session_id, turn, lambda turn: ["Be", "cause."])
"""
    for session_id, survivor in lives("web_ui_turn_journal", run):
        gone(daemon)
        survivor.do("example.start(store)")
        report = survivor.do("example.start(store).overall")
        rows = survivor.do(f"store.rows({session_id!r})")
        turns = daemon.reader.session(session_id).project("transcript") or []
        states = [one["state"] for one in turns if one["turn_id"]]
        assert report == "ok" or "interrupted" in states, (session_id, report)
        assert list(rows.values())[:1] == ["Why?"][: len(states)], (session_id, rows)
        again = f"example.post(store, {session_id!r}, '{session_id}m', 'Why?')"
        assert survivor.do(again) == survivor.do(again), session_id
        whole = [one for key, one in rows.items() if ":" not in key][1:]
        marked = [one for key, one in rows.items() if key.endswith(":interrupted")]
        assert whole == ["Because."] or len(marked) == len(states), (session_id, rows)


def test_what_the_web_ui_had_in_flight_is_saved(lives: Lives, daemon: DaemonProcess) -> None:
    run = "example.answer(store, session_id, ['Be', 'cause.'])"
    said = []
    for session_id, survivor in lives("web_ui_in_flight", run):
        gone(daemon)
        survivor.do("example.start(store)")
        rows = survivor.do(f"store.rows({session_id!r})")
        said.append("".join(one for one in rows.values() if one != "[interrupted]"))
        assert len(rows) <= 1, (session_id, rows)
        assert daemon.reader.recover_all() == [], session_id
    assert said == sorted(said, key=len), "the later it is killed the more there is"
    assert {"", "Be", "Because."} == set(said)


def gone(daemon: DaemonProcess) -> None:
    """What the killed agent had begun is known to be nobody's."""
    for reply in daemon.reader.recover_all():
        daemon.orphan(reply.stream_id)
