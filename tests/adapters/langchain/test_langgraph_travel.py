"""A LangGraph run that goes back to an earlier checkpoint, with a subgraph that keeps its own."""

from __future__ import annotations

import importlib
import operator
import threading
from typing import Annotated, Any, TypedDict

import pytest
import walld_client
from adapters.trial import wants

wants("langgraph", "langgraph-checkpoint-conformance", "langchain-openai")

from langgraph.checkpoint.memory import InMemorySaver  # noqa: E402

graphs = importlib.import_module("langgraph.graph")
saver_module = importlib.import_module("walld_client.adapters.langgraph")


class State(TypedDict):
    said: Annotated[list[str], operator.add]


class Behind(saver_module.WalldSaver):  # type: ignore[misc]
    """Puts what the outer graph has at `sub` only when the subgraph has put all of its own.

    LangGraph's own order where the disk is slow: namespaces do not wait for each other.
    """

    def __init__(self, client: walld_client.Client) -> None:
        super().__init__(client)
        self.has_put_inner = threading.Event()

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        inner = config["configurable"].get("checkpoint_ns")
        if not inner and "branch:to:sub" in (checkpoint["updated_channels"] or ()):
            assert self.has_put_inner.wait(20)
        put = super().put(config, checkpoint, metadata, new_versions)
        if inner and metadata["step"] == 1:
            self.has_put_inner.set()
        return put


def travelled(saver: Any) -> Any:
    """What the run that goes back to the step before the subgraph gives, and the subgraph's."""

    def says(word: str) -> Any:
        return lambda _: {"said": [word]}

    inner = graphs.StateGraph(State).add_node("word", says("inner"))
    inner = inner.add_edge(graphs.START, "word").compile(checkpointer=True)
    outer = graphs.StateGraph(State).add_node("first", says("first")).add_node("sub", inner)
    outer.add_edge(graphs.START, "first").add_edge("first", "sub")
    graph = outer.compile(checkpointer=saver)
    config = {"configurable": {"thread_id": "travel"}}
    graph.invoke({"said": ["in"]}, config)
    back = next(one for one in graph.get_state_history(config) if one.next == ("sub",))
    return graph.invoke(None, back.config)


@pytest.mark.parametrize("kind", [saver_module.WalldSaver, Behind])
def test_a_subgraph_goes_back_with_its_graph(walld: walld_client.Client, kind: Any) -> None:
    """`list(before=)` names a checkpoint of another namespace: its place in the log, where those of
    the subgraph may stand in front of it, says nothing."""
    walld.delete("travel")
    assert travelled(kind(walld)) == travelled(InMemorySaver())
