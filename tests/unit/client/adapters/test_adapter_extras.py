"""What an adapter says where its SDK is not installed."""

from __future__ import annotations

import importlib
import sys

import pytest

NEEDED = {
    "anthropic": ("anthropic", "anthropic"),
    "httpx2": ("httpx2", "httpx2"),
    "langchain": ("langchain", "langchain_core"),
    "langgraph": ("langgraph", "langgraph"),
    "openai_agents": ("openai-agents", "agents"),
    "pydantic_ai": ("pydantic-ai", "pydantic_ai"),
    "pydantic_ai_conversations": ("pydantic-ai", "pydantic_ai"),
}
OURS = {f"walld_client.adapters.{one}" for one in (*NEEDED, "langgraph_calls")}


@pytest.mark.parametrize("module", NEEDED)
def test_it_names_the_extra(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    extra, package = NEEDED[module]
    for name in [*sys.modules]:
        if name.partition(".")[0] == package or name in OURS:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError) as raised:
        importlib.import_module(f"walld_client.adapters.{module}")
    assert f"pip install 'walld-client[{extra}]'" in str(raised.value)
    assert (raised.value.name or "").partition(".")[0] in (package, "pydantic")
    assert raised.value.__suppress_context__


def test_what_an_sdk_itself_misses_is_said_in_its_own_words() -> None:
    needs = importlib.import_module("walld_client.adapters.frameworks.extras").needs
    words = "No module named 'no_such_thing'"
    with pytest.raises(ModuleNotFoundError, match=words), needs("langchain", "langchain_core"):
        importlib.import_module("no_such_thing")
