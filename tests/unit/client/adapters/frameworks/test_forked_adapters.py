"""An agent that is forked while another thread of it is inside an adapter, and the rule for locks.

Real forks in processes of their own. The thread is held where the adapter asks for the hash of an
id, or for the parts of a message, and the child does what the thread was about to do.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import walld_client
from daemon_process import environment

PREAMBLE = """
import os, signal, sys, threading, warnings
import walld_client
from walld_client.adapters.frameworks import langchain_interrupts, langgraph_tasks
from walld_client.adapters.frameworks import pydantic_ai_deferred
from walld_client.adapters.frameworks.model_call import Board
from walld_client.adapters.frameworks.recording import Opener

warnings.simplefilter("ignore", DeprecationWarning)  # it has threads: that is what is tried
inside, go_on = threading.Event(), threading.Event()

def wait():
    inside.set()
    go_on.wait()

class Slow(str):
    def __hash__(self):
        wait()
        return str.__hash__(self)

class Thing:
    def __init__(self, **has):
        self.__dict__.update(has)

client = walld_client.connect("/nowhere/walld.sock")
board = Board(Opener(client, "s", None, False, None))
call = board.begin("run")
call.message_id = "m"
board.leave_open(call)
"""

OF_A_FORK = """
threading.Thread(target=held, daemon=True).start()
assert inside.wait(60)
child = os.fork()
if child == 0:
    signal.alarm(30)  # ends a child that hangs
    then()
    os._exit(0)
_, status = os.waitpid(child, 0)
go_on.set()
sys.exit(os.waitstatus_to_exitcode(status))
"""

HELD = {
    "tasks a saver has": """
def held():
    langgraph_tasks.has([Slow("task")])
def then():
    langgraph_tasks.has(["task"])
    langgraph_tasks.settle()
""",
    "calls that wait for another run": """
message = Thing(type="ai", id="m")
langchain_interrupts.hold(board, "run", ["task"], {"messages": [message]})
def held():
    langchain_interrupts.take_up(board, "next", Slow("task"))
def then():
    langchain_interrupts.take_up(board, "next", "task")
    assert board.is_open("next")
""",
    "requests that wait for another run": """
class Response(Thing):
    kind, timestamp = "response", 1
    parts = property(lambda self: wait() or self.of)
part = Thing(tool_call_id="c")
tools = pydantic_ai_deferred.Tools(board)
pydantic_ai_deferred.defer(
    Thing(approvals=[part], calls=[]), [Thing(kind="response", parts=[part], timestamp=1)], tools
)
def held():
    pydantic_ai_deferred.take_up([Response(of=[part])])
def then():
    said = Thing(kind="response", parts=[part], timestamp=1)
    assert pydantic_ai_deferred.take_up([said]) is tools
""",
    "model calls of a run": """
def held():
    board.run_ended(Slow("run"))
def then():
    assert board.is_open("run")
    board.run_ended("run")
    assert not board.is_open("run")
""",
}


@pytest.mark.parametrize("what", HELD)
def test_a_child_does_not_wait_for_a_thread_of_its_parent(what: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + HELD[what] + OF_A_FORK],
        env=environment(), capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


LOCKS = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Barrier"}
NEW_IN_A_CHILD = {"forked", "renew"}
"""What a class has that makes its own anew."""
OTHERWISE = {
    "first_use.py": "a hook of its own makes it anew",
    "link/process.py": "the hook itself",
    "link/io_thread.py": "all of it is made anew",
    "aio.py": "made anew in another loop, and a child has no loop of its parent's",
    "query/aio_pool.py": "of a loop, and a child has none of its parent's",
}
PACKAGE = Path(walld_client.__file__).parent


def locks_made(tree: ast.AST, owners: tuple[ast.ClassDef, ...] = ()) -> Iterator[tuple[int, bool]]:
    """The lines in which a lock is made, and whether a class around it makes it anew in a child."""
    for node in ast.iter_child_nodes(tree):
        around = (*owners, node) if isinstance(node, ast.ClassDef) else owners
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of = node.func.value
            if (
                node.func.attr in LOCKS
                and isinstance(of, ast.Name)
                and of.id in ("threading", "asyncio")
            ):
                names = {
                    one.name
                    for owner in around
                    for one in owner.body
                    if isinstance(one, ast.FunctionDef)
                }
                yield node.lineno, bool(names & NEW_IN_A_CHILD)
        yield from locks_made(node, around)


def test_each_lock_of_the_client_is_free_in_the_child_of_a_fork() -> None:
    """Any other one is a `process.Mutex`."""
    found = [
        (name, line, is_free)
        for path in sorted(PACKAGE.rglob("*.py"))
        for name in [path.relative_to(PACKAGE).as_posix()]
        for line, is_free in locks_made(ast.parse(path.read_text()))
    ]
    assert len(found) >= len(OTHERWISE), "it no longer finds them"
    assert {name for name, _, is_free in found if not is_free} - OTHERWISE.keys() == set()


def test_a_lock_that_no_class_makes_anew_is_found() -> None:
    assert list(locks_made(ast.parse("import threading\n_lock = threading.RLock()"))) == [
        (2, False)
    ]
