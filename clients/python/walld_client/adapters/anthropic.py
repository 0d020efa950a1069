"""A middleware for anthropic's clients, of either colour:

    client = anthropic.Anthropic().with_middleware(WalldMiddleware(walld, "session-1"))

Owns: finding the response that a call has made. Refuses: the rest, which is the httpx2 hook's.

anthropic runs its middleware inside its retries, once an attempt: an attempt that got a stream is a
reply of its own, and one that got an error status said nothing and is none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from walld_client.adapters.frameworks.extras import needs
from walld_client.adapters.frameworks.recording import Opener, SessionId
from walld_client.adapters.frameworks.tool_effects import Declared
from walld_client.client import ClientBase

with needs("anthropic", "anthropic"):
    import anthropic
    from walld_client.adapters.httpx2 import record_response

__all__ = ["WalldMiddleware"]

_log = logging.getLogger("walld")


class WalldMiddleware(anthropic.Middleware):
    """Records what each call streams. Its arguments are those of `httpx2.response_hook`, and the
    session is asked for at the same moment: when an attempt has its response.
    """

    def __init__(
        self,
        client: ClientBase,
        session_id: SessionId,
        *,
        on_reply: Callable[[str], object] | None = None,
        auto_release: bool = False,
        tool_effects: Declared | None = None,
    ) -> None:
        self._opener = Opener(client, session_id, on_reply, auto_release, tool_effects)

    def handle(self, request: Any, call_next: Callable[[Any], Any]) -> Any:
        """One attempt of a synchronous client."""
        response = call_next(request)
        self._record(response)
        return response

    async def handle_async(self, request: Any, call_next: Callable[[Any], Any]) -> Any:
        """One attempt of an asynchronous client."""
        response = await call_next(request)
        self._record(response)
        return response

    def _record(self, response: Any) -> None:
        try:
            record_response(self._opener, response.http_response)
        except Exception:
            _log.exception("a response is not recorded: walld's middleware failed on it")
