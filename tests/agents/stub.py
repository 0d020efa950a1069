"""The smallest agent: bare sockets and bytes, nothing of walld imported.

Arguments: socket, stream id, session id, then the tokens. Sends Hello, Start and the tokens as
`clients/PROTOCOL.md` has them, says so in a line, and is silent until it is killed.
"""

import os
import signal
import socket
import struct
import sys


def packed(*fields):
    """A msgpack array of small integers, short strings and short bytes."""
    out = bytes([0x90 | len(fields)])
    for field in fields:
        if isinstance(field, int):
            out += bytes([field])
        elif isinstance(field, str):
            out += bytes([0xD9, len(field.encode())]) + field.encode()
        else:
            out += bytes([0xC4, len(field)]) + field
    return struct.pack(">I", len(out)) + out


path, stream_id, session_id, *tokens = sys.argv[1:]
agent = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
agent.connect(path)
agent.sendall(packed(0, 1, "agent", os.urandom(16)))
agent.sendall(packed(2, 1, 0, stream_id, session_id))
for seq, token in enumerate(tokens, 1):
    agent.sendall(packed(3, 1, seq, token.encode()))
print(len(tokens), flush=True)
signal.pause()
