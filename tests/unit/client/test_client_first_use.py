"""What is loaded when: the package alone, a client, a reply; the rest when it is first used.

In interpreters of their own: this one has loaded everything.
"""

from __future__ import annotations

import ast
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import walld_client
from fake_daemon import FakeDaemon
from walld_client.first_use import first_use, made

PACKAGE = Path(walld_client.__file__).parent
EAGER = {
    "Blocked",
    "NotDurable",
    "Refused",
    "Unavailable",
    "Unsupported",
    "WalldError",
    "__version__",
}
LOADED_MAX = 25
PATIENCE_SECONDS = 60
OWN = """
import sys

def own():
    return {name for name in sys.modules if name.partition(".")[0] == "walld_client"}

def late():
    rooms = ("session", "recovered", "query", "null", "aio_null", "adapters")
    return sorted(name for name in own() if name.split(".")[1:2] and name.split(".")[1] in rooms)

"""


def output(script: str, *arguments: str) -> str:
    """What a fresh interpreter prints; it must end well."""
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", OWN + script, *arguments]
    done = subprocess.run(
        command,
        check=False,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# --- names ---


def test_each_public_name_says_where_it_is_defined() -> None:
    modules = walld_client._MODULES
    assert set(modules) | EAGER == set(walld_client.__all__)
    assert not set(modules) & EAGER
    for name, module in modules.items():
        assert getattr(walld_client, name).__module__ == f"walld_client.{module}"


@pytest.mark.parametrize("how", ["import walld_client as w", "from walld_client import *"])
def test_all_names_are_there_in_a_fresh_interpreter(how: str) -> None:
    names = sorted(walld_client.__all__)
    found = "vars(w)" if how.endswith("w") else "globals()"
    script = f"""
{how}
for name in {names}:
    {"getattr(w, name)" if how.endswith("w") else "globals()[name]"}
print(set({names}) <= set({found}))
"""
    assert output(script) == "True\n"


def test_an_import_of_one_name_and_of_a_module_and_their_attributes() -> None:
    script = """
import walld_client
assert set(walld_client.__all__) <= set(dir(walld_client))
for name in sorted(walld_client._SUBMODULES | {"errors", "limits", "link", "version"}):
    assert name in dir(walld_client)
    assert getattr(walld_client, name) is sys.modules["walld_client." + name], name
assert walld_client.limits.CLOSE_SECONDS and walld_client.stats.Stats is walld_client.Stats
try:
    walld_client.no_such_name
except AttributeError as error:
    print(error)
try:
    from walld_client import no_such_name
except ImportError:
    print("ImportError")
import walld_client.aio as aio
assert {"Session", "Turn", "connect"} <= set(dir(aio))
from walld_client.aio import Session, Turn
assert Session is aio.Session and aio.Turn is Turn
print(hasattr(aio, "no_such_name"))
"""
    said = "module 'walld_client' has no attribute 'no_such_name'\nImportError\nFalse\n"
    assert output(script) == said


def test_a_pickle_is_read_before_anything_is_loaded() -> None:
    gap = walld_client.Gap(1, 2, "torn")
    script = "import pickle\nprint(pickle.loads(bytes.fromhex(sys.argv[1])))"
    assert output(script, pickle.dumps(gap).hex()) == f"{gap}\n"


# --- what is loaded ---


def test_the_package_alone_loads_little_and_not_msgspec() -> None:
    script = "import walld_client\nprint(len(own()), 'msgspec' in sys.modules)"
    number, has_msgspec = output(script).split()
    assert int(number) <= LOADED_MAX
    assert has_msgspec == "False"


@pytest.mark.parametrize("colour", ["walld_client", "walld_client.aio"])
def test_replies_load_nothing_of_sessions_or_queries_and_a_token_nothing_at_all(
    daemon: FakeDaemon, colour: str
) -> None:
    script = f"""
import {colour}
client = {colour}.connect(sys.argv[1])
assert late() == [], late()
reply = client.reply("S")
before = set(sys.modules)
reply.token("x")
reply.end()
assert set(sys.modules) == before, set(sys.modules) - before
client.stats()
close = client.close(20.0)
if {colour == "walld_client.aio"}:
    import asyncio
    close = asyncio.run(close)
assert close
assert late() == [], late()
"""
    output(script, daemon.path)
    daemon.until(lambda: daemon.agent().text() == "x")


def test_preload_loads_all_but_the_adapters() -> None:
    """So that a program that takes another user or another root has all it may use."""
    names = (path.relative_to(PACKAGE.parent).with_suffix("") for path in PACKAGE.rglob("*.py"))
    all_of_it = {".".join(one.parts).removesuffix(".__init__") for one in names}
    script = "import walld_client.preload\nprint(*own())"
    missing = all_of_it - set(output(script).split())
    start = ("walld_client.start", "walld_client.link.directory_owner")
    apart = ("walld_client.adapters", "walld_client.testing", *start)
    assert {one for one in missing if not one.startswith(apart)} == set()


def test_no_module_asks_the_package_for_what_it_loads_late() -> None:
    """It would load that within its own load: a circle, and a wait while it is being loaded."""
    for path in PACKAGE.rglob("*.py"):
        if "adapters" in path.parts or path == PACKAGE / "__init__.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "walld_client":
                assert [one.name for one in node.names] == ["link_registry"], path


# --- threads, forks, signals, the end ---


def test_threads_that_ask_at_once_get_the_same(tmp_path: Path) -> None:
    script = """
import threading, walld_client
client = walld_client.connect(sys.argv[1])
start, found = threading.Barrier(8), []
def ask():
    start.wait(20)
    found.append((walld_client.Session, client.session("S") and client._append_queue, client._pool))
threads = [threading.Thread(target=ask) for _ in range(8)]
for one in threads: one.start()
for one in threads: one.join()
print(len(found), len({tuple(map(id, one)) for one in found}))
"""
    assert output(script, str(tmp_path / "nobody")) == "8 1\n"


def test_a_child_forked_while_a_thread_loads_can_load_the_same() -> None:
    """Without the lock the child has the module's own, which nobody there releases."""
    script = """
import os, signal, threading, time, walld_client
from importlib.abc import MetaPathFinder
loading = threading.Event()
class Slow(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "walld_client.session.entries" and not loading.is_set():
            loading.set()
            time.sleep(0.5)  # the fork below falls into the load
sys.meta_path.insert(0, Slow())
client = walld_client.connect("/nowhere")
thread = threading.Thread(target=lambda: client.session("S"))
thread.start()
loading.wait(20)
child = os.fork()
if child == 0:
    signal.alarm(20)
    client.session("S")
    os._exit(0)
thread.join()
print(os.waitpid(child, 0)[1])
"""
    assert output(script) == "0\n"


def test_what_a_signal_handler_calls_waits_for_no_load_of_another_thread() -> None:
    """The load may wait for a module that the interrupted thread is loading."""
    script = """
import os, signal, threading, walld_client
from importlib.abc import MetaPathFinder
loading, handled = threading.Event(), threading.Event()
class Stuck(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "walld_client.session.entries":
            loading.set()
            assert handled.wait(30), "the handler waits for the load"
sys.meta_path.insert(0, Stuck())
client = walld_client.connect("/nowhere")
reply, said = client.reply("S"), []
def handler(number, frame):
    said.append(reply.token("x"))
    said.append(client.reply("T").cancel())
    said.append(client.stats().backlog > 0)
    said.append(walld_client.connect("/nowhere").close(0.0))
    said.append(client.close(0.0))
    handled.set()
signal.signal(signal.SIGUSR1, handler)
thread = threading.Thread(target=lambda: client.session("S"))
thread.start()
assert loading.wait(20)
os.kill(os.getpid(), signal.SIGUSR1)
thread.join()
print(said)
"""
    assert output(script) == "[1, 1, True, False, False]\n"


def test_a_fork_in_a_handler_whose_thread_the_load_waits_for_goes_on() -> None:
    script = """
import os, threading, walld_client
from walld_client import first_use
first_use._WAIT_SECONDS = 0.05
has, done = threading.Event(), threading.Event()
def load():
    with first_use.loading():
        has.set()
        done.wait(30)
thread = threading.Thread(target=load)
thread.start()
has.wait(20)
child = os.fork()
if child == 0:
    first_use._WAIT_SECONDS = 30.0
    with first_use.loading():  # free: who has the parent's is not here
        os._exit(0)
assert os.waitpid(child, 0)[1] == 0
with first_use.loading():
    print("went on")
done.set()
thread.join()
with first_use.loading():
    assert first_use._lock._is_owned()
assert not first_use._lock._is_owned()
"""
    assert output(script) == "went on\n"


def test_a_call_and_a_signal_handler_in_the_midst_of_it_get_the_same() -> None:
    class Thing:
        calls = 0
        inner: object = None

        @first_use
        def part(self) -> object:
            """Documented."""
            self.calls += 1
            if self.calls == 1:
                self.inner = self.part  # as a handler does
            return object()

    thing = Thing()
    assert made(thing, "part") is None
    assert thing.part is thing.inner
    assert thing.part is made(thing, "part")
    assert thing.calls == 2
    assert Thing.part.__doc__ == "Documented."


def test_an_attribute_is_made_once_for_all_threads() -> None:
    class Thing:
        made = 0

        @first_use
        def part(self) -> object:
            self.made += 1
            return object()

    thing, start, found = Thing(), threading.Barrier(8), list[object]()

    def ask() -> None:
        start.wait(20)
        found.append(thing.part)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert (thing.made, len(set(found))) == (1, 1)


def test_at_the_end_the_program_is_first_then_the_links_then_the_posts(tmp_path: Path) -> None:
    """A program's own handler may still send: that of this package is where it is imported."""
    script = """
import atexit
atexit.register(lambda: print("loaded at the end:", sorted(own() - before)))
import walld_client
atexit.register(lambda: print("the program"))
client = walld_client.connect(sys.argv[1])
if sys.argv[2]:
    client.session("S")
from walld_client import link_registry
flushed = link_registry.flushed
link_registry.flushed = lambda *given: print("a link") or flushed(*given)
link_registry._last[:] = [
    lambda deadline, it=it: print(it.__name__) or it(deadline) for it in link_registry._last
]
before = own()
"""
    path = str(tmp_path / "nobody")
    said = "the program\na link\n{}loaded at the end: []\n"
    assert output(script, path, "") == said.format("")
    assert output(script, path, "a session") == said.format("hand_over_all\n")


def test_close_loads_nothing_and_ends_what_was_asked_on(daemon: FakeDaemon) -> None:
    script = """
import walld_client
client = walld_client.connect(sys.argv[1])
if sys.argv[2]:
    assert client.has_partial("S") is False
before = own()
client.close(5.0)
assert own() == before, own() - before
if sys.argv[2]:
    assert client._query._socket is None
"""
    daemon.answers(False)
    output(script, daemon.path, "")
    output(script, daemon.path, "asked")
