"""A CLI agent whose event log is a session: killed anywhere, it goes on from what the log has."""

import walld_client

client = walld_client.connect()


def converse(session_id, prompt, model, tools):
    """Ask; with None for a prompt, go on with what was asked when the program died.

    model(messages, reply) says its words (reply) and its calls (reply.tool), and returns these.
    Blocked names what a person has to decide first, as `walld explain` does.
    """
    session = client.session(session_id)
    turn = session.submit(prompt, calls="journal") if prompt else session.resume()
    while True:
        with turn.reply() as reply:
            calls = model(session.messages("openai"), reply)
            reply.end()
        if not calls:
            turn.completed()
            return session.messages(last=1)[-1]["content"]
        for call_id, name, arguments in calls:
            turn.intent(name, arguments, call_id=call_id, **tools[name].risk)
            turn.tool_started(call_id)
            turn.tool_finished(call_id, tools[name](**arguments))
