"""Settings: origins in their order, bounds that name both sides, no silent default."""

import pytest
from walld_client.link.socket_path import socket_candidates

from walld import limits
from walld.daemon.settings import KEYS, Address, load
from walld.errors import ConfigError

HOME = {"HOME": "/home/ann"}


def settings(flags=None, env=None, uid=1000):
    return load(flags or {}, {**HOME, **(env or {})}, uid)


def test_every_key_has_a_value_and_an_origin():
    read = settings()
    assert set(read.origins) == set(KEYS)
    for key in KEYS:
        assert isinstance(read.shown(key), str)
    assert read.flush_bound_ms == limits.FLUSH_BOUND_MS_DEFAULT
    assert read.flush_linger_ms is None
    assert read.shown("flush_linger_ms") == "auto"
    assert read.metrics is None
    assert read.origins["metrics"] == "default"


def test_flag_beats_variable_beats_file_beats_default(tmp_path):
    file = tmp_path / "walld.toml"
    file.write_text("flush_bound_ms = 100\nreclaim_seconds = 1.5\nretention_seconds = 60\n")
    env = {"WALLD_CONFIG": str(file), "WALLD_FLUSH_BOUND_MS": "200", "WALLD_RECLAIM_SECONDS": "2"}
    read = settings({"flush_bound_ms": "300", "metrics": None}, env)
    assert (read.flush_bound_ms, read.origins["flush_bound_ms"]) == (300, "--flush-bound-ms")
    assert (read.reclaim_seconds, read.origins["reclaim_seconds"]) == (2, "WALLD_RECLAIM_SECONDS")
    assert (read.retention_seconds, read.origins["retention_seconds"]) == (60, str(file))
    assert read.origins["data"] == "default ($HOME)"


def test_config_flag_beats_the_variable(tmp_path):
    (tmp_path / "a").write_text("flush_bound_ms = 100")
    (tmp_path / "b").write_text("flush_bound_ms = 200")
    read = settings({"config": str(tmp_path / "b")}, {"WALLD_CONFIG": str(tmp_path / "a")})
    assert read.flush_bound_ms == 200


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("flush_buond_ms = 3", "unknown keys flush_buond_ms"),
        ("flush_bound_ms = ", "is not TOML"),
        ("flush_bound_ms = true", "from 20 to 3000"),
        ("socket_mode = 660", "octal"),
        ("[flush_bound_ms]\na = 1", "from 20 to 3000"),
        ("metrics = [1]", "HOST:PORT"),
        ("data = 7", "a path"),
    ],
)
def test_a_bad_file_is_refused(tmp_path, text, said):
    file = tmp_path / "walld.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said) as caught:
        settings({"config": str(file)})
    assert str(file) in str(caught.value)


def test_a_missing_file_is_refused():
    with pytest.raises(ConfigError, match=r"--config.*/nowhere.*No such file"):
        settings({"config": "/nowhere/walld.toml"})


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("flush_bound_ms", "19"),
        ("flush_bound_ms", "3001"),
        ("flush_bound_ms", "3s"),
        ("flush_bound_ms", "-20"),
        ("flush_bound_ms", "٣٠"),
        ("flush_bound_ms", "9" * 6000),
        ("flush_linger_ms", "automatic"),
        ("flush_linger_ms", "60001"),
        ("reclaim_seconds", "-1"),
        ("reclaim_seconds", "nan"),
        ("retention_seconds", "59"),
        ("retention_seconds", "inf"),
        ("release_hold_seconds", "later"),
        ("socket_mode", "888"),
        ("socket_mode", "0066"),
        ("socket_mode", "01777"),
        ("socket", "/" + "x" * 107),
        ("socket", "a\0b"),
        ("metrics", "yes"),
        ("metrics", "70000"),
        ("metrics", "::1:9464"),
        ("metrics", "a b:1"),
        ("backend", "twisted"),
        ("log_format", "xml"),
    ],
)
def test_a_bad_value_names_key_origin_got_and_limit(key, text):
    with pytest.raises(ConfigError) as caught:
        settings({key: text})
    said = str(caught.value)
    assert said.startswith(f"{key} from --{key.replace('_', '-')}: got {text!r}, taken is ")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("off", None),
        ("9464", ("127.0.0.1", 9464)),
        (":9464", ("127.0.0.1", 9464)),
        ("0.0.0.0:1", ("0.0.0.0", 1)),
        ("[::1]:9464", ("::1", 9464)),
    ],
)
def test_metrics_address(text, address):
    read = settings({"metrics": text})
    assert read.metrics == (Address(*address) if address else None)
    assert settings({"metrics": read.shown("metrics")}).metrics == read.metrics


def test_shown_values_can_be_given_back():
    flags = {"socket_group": "walld", "flush_linger_ms": "0", "backend": "asyncio"}
    read = settings(flags)
    again = settings({key: read.shown(key) for key in KEYS})
    assert [getattr(again, key) for key in KEYS] == [getattr(read, key) for key in KEYS]


@pytest.mark.parametrize("text", ["1234567", "2592000", "60.5", "86400.0001"])
def test_a_number_is_shown_with_all_its_digits(text):
    assert settings({"retention_seconds": text}).shown("retention_seconds") == text
    with pytest.raises(ConfigError, match=r"from 60 to 315360000$"):
        settings({"retention_seconds": "1"})


def test_a_group_opens_the_socket_to_it():
    assert settings().socket_mode == 0o600
    assert settings({"socket_group": "agents"}).socket_mode == 0o660
    assert settings({"socket_group": "agents", "socket_mode": "0600"}).socket_mode == 0o600


@pytest.mark.parametrize(
    ("env", "uid", "data", "socket"),
    [
        ({}, 1000, "/home/ann/.local/state/walld", "/tmp/walld-1000/walld.sock"),
        ({}, 0, "/home/ann/.local/state/walld", "/run/walld/walld.sock"),
        ({"TMPDIR": "/t"}, 7, "/home/ann/.local/state/walld", "/t/walld-7/walld.sock"),
        (
            {"XDG_STATE_HOME": "/s", "XDG_RUNTIME_DIR": "/run/user/7"},
            7,
            "/s/walld",
            "/run/user/7/walld/walld.sock",
        ),
        (
            {"XDG_STATE_HOME": "relative", "XDG_RUNTIME_DIR": "relative"},
            7,
            "/home/ann/.local/state/walld",
            "/tmp/walld-7/walld.sock",
        ),
        (
            {"STATE_DIRECTORY": "/var/lib/walld:/var/lib/x", "RUNTIME_DIRECTORY": "/run/walld"},
            990,
            "/var/lib/walld",
            "/run/walld/walld.sock",
        ),
    ],
)
def test_default_places(env, uid, data, socket):
    read = settings(env=env, uid=uid)
    assert (read.data, read.socket) == (data, socket)


@pytest.mark.parametrize("uid", [0, 1000])
@pytest.mark.parametrize("env", [{}, {"XDG_RUNTIME_DIR": "/run/user/7"}, {"TMPDIR": "/t"}])
def test_the_daemon_listens_where_its_own_clients_look(env, uid):
    assert settings(env=env, uid=uid).socket in socket_candidates(env, uid)


def test_no_home_is_said():
    with pytest.raises(ConfigError, match="--data DIR"):
        load({}, {}, 1000)


def test_set_but_empty_is_not_set():
    assert settings(env={"WALLD_FLUSH_BOUND_MS": ""}).origins["flush_bound_ms"] == "default"
