"""Settings: every option, its bounds, and where its value came from.

Owns: names, defaults, parsing and the order of origins: default < TOML file < WALLD_* < flag.
Refuses: doing anything with a value, and any I/O but reading the one config file.

Invariants: a Settings is whole and within its bounds; `origins` has an entry for each key; a value
that cannot be used is a ConfigError that names key, origin, what was got and what is taken, and
never falls back to a default in silence.
"""

from __future__ import annotations

import importlib.util
import os
import tomllib
from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple, cast, get_args

import msgspec
from walld_client.link.socket_path import SOCKET_PATH_BYTES_MAX, socket_candidates

from walld import limits
from walld.errors import ConfigError

__all__ = ["KEYS", "Address", "Backend", "LogFormat", "Settings", "load"]

Backend = Literal["asyncio", "asyncio+uvloop", "trio"]
LogFormat = Literal["text", "json"]

DAY_SECONDS: Final = 24 * 3600


class Address(NamedTuple):
    """Where metrics are served. Port 0 lets the kernel choose; the log says which."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of one daemon.

    socket_group None: the group is left as it is. flush_linger_ms None: adaptive ("auto").
    metrics None: off. origins: key -> "default", "default ($VARIABLE)", a variable, a file, a flag.
    """

    data: str
    socket: str
    socket_mode: int
    socket_group: str | None
    flush_bound_ms: int
    flush_linger_ms: int | None
    reclaim_seconds: float
    retention_seconds: float
    release_hold_seconds: float
    metrics: Address | None
    backend: Backend
    log_format: LogFormat
    expect_data: bool
    origins: dict[str, str]

    def shown(self, key: str) -> str:
        """The value as one would write it in a config file."""
        value = getattr(self, key)
        if isinstance(value, bool):
            return "yes" if value else "no"
        if value is None:
            return {"flush_linger_ms": "auto", "metrics": "off"}.get(key, "")
        if key == "socket_mode":
            return f"{value:04o}"
        return _plain(value) if isinstance(value, float) else str(value)


# --- one value ----------------------------------------------------------------------------------
# A parser takes what stands in TOML, or the text of a variable or flag. It raises ValueError with
# what would have been taken; `load` adds key, origin and what was got.


def _whole(least: int, most: int, unit: str) -> Callable[[object], int]:
    def parse(raw: object) -> int:
        taken = f"a whole number of {unit} from {least} to {most}"
        if isinstance(raw, str) and raw.strip().isascii() and raw.strip().isdecimal():
            raw = int(raw) if len(raw) < 20 else -1
        if isinstance(raw, bool) or not isinstance(raw, int) or not least <= raw <= most:
            raise ValueError(taken)
        return raw

    return parse


def _linger(raw: object) -> int | None:
    if raw == "auto":
        return None
    try:
        return _whole(0, 60_000, "milliseconds")(raw)
    except ValueError as error:
        raise ValueError(f'"auto" or {error}') from None


def _plain(number: float) -> str:
    """All its digits: `:g` makes 1.23457e+06 of 1234567, which is another number."""
    return str(int(number)) if number == int(number) else repr(number)


def _seconds(least: float, most: float) -> Callable[[object], float]:
    def parse(raw: object) -> float:
        taken = f"a number of seconds from {_plain(least)} to {_plain(most)}"
        if isinstance(raw, bool) or not isinstance(raw, (int, float, str)):
            raise ValueError(taken)
        try:
            number = float(raw)
        except (ValueError, OverflowError):
            raise ValueError(taken) from None
        if not least <= number <= most:  # NaN is refused here too
            raise ValueError(taken)
        return number

    return parse


def _path(bytes_max: int) -> Callable[[object], str]:
    def parse(raw: object) -> str:
        if not isinstance(raw, str) or not raw or "\0" in raw:
            raise ValueError("a path")
        path = os.path.abspath(raw)
        length = len(os.fsencode(path))
        if length > bytes_max:
            raise ValueError(f"a path of at most {bytes_max} bytes (this one has {length})")
        return path

    return parse


def _mode(raw: object) -> int:
    taken = 'an octal mode as text, "0600" to "0777", with 6 or 7 for the owner'
    if not isinstance(raw, str):  # 660 in TOML would be decimal: nobody means that
        raise ValueError(taken)
    try:
        mode = int(raw.removeprefix("0o"), 8)
    except ValueError:
        raise ValueError(taken) from None
    if not 0o600 <= mode <= 0o777:
        raise ValueError(taken)
    return mode


def _group(raw: object) -> str | None:
    if not isinstance(raw, str) or "\0" in raw:
        raise ValueError("the name or number of a group")
    return raw or None


def _metrics(raw: object) -> Address | None:
    taken = '"off", a port, or HOST:PORT (an IPv6 host in brackets)'
    if raw == "off":
        return None
    if isinstance(raw, int) and not isinstance(raw, bool):
        raw = str(raw)
    if not isinstance(raw, str):
        raise ValueError(taken)
    host, _, port = raw.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(taken)
    if not port.isascii() or not port.isdecimal() or len(port) > 5 or int(port) > 65535:
        raise ValueError(taken)
    if any(character.isspace() or not character.isprintable() for character in host):
        raise ValueError(taken)
    return Address(host or "127.0.0.1", int(port))


def _backend(raw: object) -> Backend:
    if raw not in get_args(Backend):
        raise ValueError(" | ".join(get_args(Backend)))
    module = {"asyncio+uvloop": "uvloop", "trio": "trio"}.get(str(raw))
    if module is not None and not _installed(module):
        raise ValueError(f"a backend that is installed ({module} is not: pip install {module})")
    return cast(Backend, raw)


def _log_format(raw: object) -> LogFormat:
    if raw not in get_args(LogFormat):
        raise ValueError(" | ".join(get_args(LogFormat)))
    return cast(LogFormat, raw)


def _yes(raw: object) -> bool:
    word = raw.lower() if isinstance(raw, str) else raw
    if word not in (True, "yes", "true", "1", False, "no", "false", "0"):
        raise ValueError('"yes" or "no"')
    return word in (True, "yes", "true", "1")


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


# --- defaults -------------------------------------------------------------------------------------


def _default_data(env: Mapping[str, str]) -> tuple[str, str]:
    """Where the data lives when nobody says: systemd's directory, the XDG one, the home."""
    state = env.get("STATE_DIRECTORY", "").partition(":")[0]
    if state:
        return state, "default ($STATE_DIRECTORY)"
    for variable, below in (("XDG_STATE_HOME", "walld"), ("HOME", ".local/state/walld")):
        base = env.get(variable, "")
        if os.path.isabs(base):  # XDG: a relative value is invalid and ignored
            return os.path.join(base, below), f"default (${variable})"
    raise ConfigError(
        "data: no default, because none of $STATE_DIRECTORY, $XDG_STATE_HOME and $HOME is an "
        "absolute path; give --data DIR"
    )


def _default_socket(env: Mapping[str, str], uid: int) -> tuple[str, str]:
    """The first of the clients' places that this daemon may own."""
    given = env.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    if given:
        return os.path.join(given, "walld.sock"), "default ($RUNTIME_DIRECTORY)"
    *shared, per_uid = socket_candidates(env, uid)
    if len(shared) == 2:
        return shared[0], "default ($XDG_RUNTIME_DIR)"
    return (shared[0] if uid == 0 else per_uid), "default"


# --- all of them ----------------------------------------------------------------------------------

_parsers: Final[dict[str, Callable[[object], object]]] = {
    "data": _path(4000),
    "socket": _path(SOCKET_PATH_BYTES_MAX),
    "socket_mode": _mode,
    "socket_group": _group,
    "flush_bound_ms": _whole(limits.FLUSH_BOUND_MS_MIN, limits.FLUSH_BOUND_MS_MAX, "milliseconds"),
    "flush_linger_ms": _linger,
    "reclaim_seconds": _seconds(0, DAY_SECONDS),
    "retention_seconds": _seconds(60, 3650 * DAY_SECONDS),
    "release_hold_seconds": _seconds(0, 30 * DAY_SECONDS),
    "metrics": _metrics,
    "backend": _backend,
    "log_format": _log_format,
    "expect_data": _yes,
}
KEYS: Final = tuple(_parsers)
assert set(KEYS) | {"origins"} == set(Settings.__struct_fields__)


def _from_file(path: str, origin: str) -> dict[str, object]:
    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"config from {origin}: {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"config from {origin}: {path} is not TOML: {error}") from error
    unknown = sorted(set(table) - set(KEYS))
    if unknown:
        raise ConfigError(
            f"config from {origin}: {path} has unknown keys {', '.join(unknown)}; "
            f"known are {', '.join(KEYS)}"
        )
    return table


def _given(
    flags: Mapping[str, str | None], env: Mapping[str, str]
) -> dict[str, tuple[object, str]]:
    """Key -> (raw value, origin), the stronger origin winning."""
    given: dict[str, tuple[object, str]] = {}
    file = flags.get("config")
    file_origin = "--config" if file else "WALLD_CONFIG"
    file = file or env.get("WALLD_CONFIG")
    if file:
        for key, raw in _from_file(file, file_origin).items():
            given[key] = raw, file
    for key in KEYS:
        variable = "WALLD_" + key.upper()
        text = env.get(variable)
        if text:  # set but empty counts as not set, as everywhere in a shell
            given[key] = text, variable
        flag = flags.get(key)
        if flag is not None:
            given[key] = flag, "--" + key.replace("_", "-")
    return given


def load(flags: Mapping[str, str | None], env: Mapping[str, str], uid: int) -> Settings:
    """The settings for a daemon of `uid`. `flags`: key (and "config") to the text given, or None.

    Raises ConfigError.
    """
    given = _given(flags, env)
    if "data" not in given:
        given["data"] = _default_data(env)
    if "socket" not in given:
        given["socket"] = _default_socket(env, uid)
    defaults: dict[str, object] = {
        "socket_mode": "0660" if "socket_group" in given else "0600",
        "socket_group": "",
        "flush_bound_ms": limits.FLUSH_BOUND_MS_DEFAULT,
        "flush_linger_ms": "auto",
        "reclaim_seconds": limits.RECLAIM_SECONDS_DEFAULT,
        "retention_seconds": limits.RETENTION_SECONDS_DEFAULT,
        "release_hold_seconds": 0,
        "metrics": "off",
        "backend": "asyncio+uvloop" if _installed("uvloop") else "asyncio",
        "log_format": "text",
        "expect_data": "no",
    }
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    for key, parse in _parsers.items():
        raw, origin = given[key] if key in given else (defaults[key], "default")
        try:
            values[key] = parse(raw)
        except ValueError as error:
            raise ConfigError(f"{key} from {origin}: got {raw!r}, taken is {error}") from None
        origins[key] = origin
    return msgspec.convert({**values, "origins": origins}, Settings)
