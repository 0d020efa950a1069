"""The terminal event of a reply: its reason, and the errors among them.

Owns: `AppError`s, redacted and of a length that fits. Refuses: sending them (`reply.py`).
"""

from __future__ import annotations

import logging
from typing import Any

from walld_client.encoding import value_encoding
from walld_client.encoding.event_frames import ID
from walld_client.encoding.redaction import Redact, redacted
from walld_client.limits import NAME_BYTES_MAX
from walld_client.wire.messages import AppError

__all__ = ["app_error", "message_of", "reason_text", "safe_error"]

_REASON_BYTES_MAX = 64 * 1024
_log = logging.getLogger("walld")


def reason_text(text: str | None, redact: Redact | None) -> str | None:
    """Why something ended, in a length that fits; without it where `redact` fails: it ends."""
    if text is not None and redact is not None:
        try:
            text = redact(text)
        except Exception:
            _log.exception("redact failed on a reason: it is left out")
            return None
    return None if text is None else value_encoding.clean(text, _REASON_BYTES_MAX)


def app_error(message: str, kind: str | None, detail: Any, redact: Redact | None) -> AppError:
    """Raises what `redact` raises."""
    if redact is not None:
        detail = redacted(detail, redact)
    about = None if detail is None else value_encoding.value_bytes(detail)
    text = str(message) if redact is None else redact(str(message))
    short_kind = None if kind is None else value_encoding.clean(kind, NAME_BYTES_MAX)
    return AppError(ID, ID, value_encoding.clean(text, _REASON_BYTES_MAX), short_kind, about)


def safe_error(message: str, kind: str | None, detail: Any, redact: Redact | None) -> AppError:
    """The same, without the message where `redact` fails: what is under way goes on."""
    try:
        return app_error(message, kind, detail, redact)
    except Exception:
        _log.exception("redact failed on the message of an error: it is left out")
        return app_error("", kind, None, None)


def message_of(exc: BaseException | None) -> str:
    """What it says, whatever its `__str__` does."""
    try:
        return str(exc)
    except Exception:
        return f"<{type(exc).__name__} that cannot be shown>"
