"""LangGraph: checkpoints in walld, and after a kill the words since the last of them."""

import os

import walld_client
from langchain_openai import ChatOpenAI
from langgraph.graph import MessagesState, StateGraph
from walld_client.adapters.langchain import WalldCallback
from walld_client.adapters.langgraph import WalldSaver

walld = walld_client.connect()
saver = WalldSaver(walld)
model = ChatOpenAI(model=os.environ.get("MODEL", "gpt-5"), streaming=True)
builder = StateGraph(MessagesState)
builder.add_node("answer", lambda state: {"messages": [model.invoke(state["messages"])]})
builder.set_entry_point("answer")
graph = builder.compile(checkpointer=saver)

session = saver.session_id("chat-1")
for lost in walld.orphans(session):  # a run before this one was killed behind its checkpoint
    print("said before it was killed:", lost.text)
    walld.resolve(lost.stream_id, lost.last_seq)
unsaved: list[str] = []
callback = WalldCallback(walld, session, on_reply=unsaved.append)
config = {"configurable": {"thread_id": "chat-1"}, "callbacks": [callback]}
done = graph.invoke({"messages": [("user", "Tell me a story.")]}, config)
print(done["messages"][-1].text)
for stream_id in unsaved:
    walld.release(stream_id)  # the checkpoint has it now
