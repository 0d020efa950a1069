"""A web UI with a store of its own: whatever dies, no question is lost, and none has two turns."""

import walld_client

client = walld_client.connect(app="web-ui")


def post(store, session_id, message_id, text):
    """What a browser sends, and sends again where it heard no answer: the same turn."""
    turn = client.session(session_id).submit(text, message_id=message_id)
    store.save(session_id, {"_key": message_id, "role": "user", "content": text})
    return turn.turn_id


def work(store, session_id, turn_id, model):
    """Answer it, in any thread or process."""
    turn = client.session(session_id).turn(turn_id)
    turn.worker_started()
    with turn.reply() as reply:
        said = {"_key": reply.stream_id, "role": "assistant", "content": ""}
        for piece in model(turn):
            reply.token(piece)
            said["content"] += piece
        store.save(session_id, said)
        reply.end()
    turn.completed()


def start(store):
    """At start-up: bring the store up to the log, and say what only a person can mend."""
    return walld_client.startup(client, store).report
