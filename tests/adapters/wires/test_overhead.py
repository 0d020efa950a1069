"""What `make bench-adapters` measures can be measured: that it is, not how long it takes."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
SDKS = {
    "openai+anthropic": "anthropic",
    "langchain": "langchain",
    "pydantic-ai": "pydantic-ai-slim",
    "openai-agents": "openai-agents",
    "litellm": "litellm",
}


@pytest.mark.parametrize("group", SDKS)
def test_each_adapter_is_measured(group: str) -> None:
    try:
        importlib.metadata.version(SDKS[group])
        importlib.metadata.version("openai")
    except importlib.metadata.PackageNotFoundError as error:
        pytest.skip(f"{error.name} is not installed here: `make test-adapters` installs it")
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = os.environ | {"PYTHONPATH": path, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    command = [sys.executable, "-m", "adapters.overhead", group]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("p50") >= 2
