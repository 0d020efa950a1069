"""A program on LangChain that knows nothing of walld. Arguments: base (URL), model."""

from __future__ import annotations

import sys

from langchain_openai import ChatOpenAI

base, name = sys.argv[1:]
model = ChatOpenAI(model=name, base_url=base + "/v1", api_key="x", streaming=True, max_retries=0)
print(model.invoke("hello").text)
