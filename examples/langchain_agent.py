"""LangChain: a callback records the model's answers and what the tools gave back."""

import os

import walld_client
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from walld_client.adapters.langchain import WalldCallback


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"4 degrees in {city}"


walld = walld_client.connect()
unsaved: list[str] = []
callback = WalldCallback(walld, "chat-1", on_reply=unsaved.append)
agent = create_agent(ChatOpenAI(model=os.environ.get("MODEL", "gpt-5"), streaming=True), [weather])
question = {"role": "user", "content": "What is the weather?"}
done = agent.invoke({"messages": [question]}, config={"callbacks": [callback]})
print(done["messages"][-1].text)  # save your own copy here, durably
for stream_id in unsaved:
    walld.release(stream_id)  # only now may walld forget it
