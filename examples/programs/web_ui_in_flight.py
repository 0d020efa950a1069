# What a web UI keeps in flight: what a killed worker had said is in the store after `start`.

import walld_client

client = walld_client.connect(app="web-ui")


def answer(store, session_id, pieces):
    with client.reply(session_id) as reply:
        said = {"_key": reply.stream_id, "role": "assistant", "content": ""}
        for piece in pieces:
            reply.token(piece)
            said["content"] += piece
        store.save(session_id, said)
        reply.end()


def start(store):
    walld_client.startup(client, store)
