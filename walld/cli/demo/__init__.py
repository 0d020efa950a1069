"""`walld demo`: the main job on real input, in a temporary folder, in a few seconds.

A daemon is started; a second process streams a recorded reply to it and is killed -9 in the
middle; the reply is recovered, compared with what was sent, and resolved. Exit 0 only if every byte
that the kernel took from the agent came back.

`reply.sse` is a recorded stream in the format of Anthropic's Messages API, captured from a server
on loopback that said our own text.
"""

from __future__ import annotations

from walld.cli.demo.play import run

__all__ = ["run"]
