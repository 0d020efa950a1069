"""The wire messages agree with `clients/PROTOCOL.md` and with each other."""

from __future__ import annotations

import ast
import inspect
import re
import types
import typing
from pathlib import Path

import msgspec
import pytest
from walld_client.wire import ledger_messages
from walld_client.wire import messages as wire

from walld.engine.protocol_errors import CLOSING_CODES, REFUSED_CODES, REQUEST_CODES

PROTOCOL = (Path(__file__).parents[4] / "clients" / "PROTOCOL.md").read_text(encoding="utf-8")
STRUCTS: dict[str, type[msgspec.Struct]] = {
    name: value
    for name, value in vars(wire).items()
    if isinstance(value, type)
    and issubclass(value, msgspec.Struct)
    and value.__module__ in (wire.__name__, ledger_messages.__name__)
    and value is not ledger_messages.Message
    and not name.startswith("_")
}
TAGS: dict[str, int] = {
    name: tag
    for name, struct in STRUCTS.items()
    if isinstance(tag := struct.__struct_config__.tag, int)
}
ROW = re.compile(r"^\|(.+)\|$", re.MULTILINE)


def rows() -> list[list[str]]:
    """Every row of every table of PROTOCOL.md."""
    return [[cell.strip() for cell in row.split("|")] for row in ROW.findall(PROTOCOL)]


def type_name(kind: object) -> str:
    """A field's type in the words of PROTOCOL.md."""
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        (inner,) = [each for each in typing.get_args(kind) if each is not type(None)]
        return f"{type_name(inner)}?"
    if typing.get_origin(kind) is list:
        (inner,) = typing.get_args(kind)
        return f"[{type_name(inner)}]"
    if typing.get_origin(kind) is tuple:
        return "(" + ", ".join(type_name(each) for each in typing.get_args(kind)) + ")"
    assert isinstance(kind, type)
    return "bin" if kind is bytes else kind.__name__


def default_text(field: msgspec.structs.FieldInfo) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        return f" = {field.default_factory()}"
    if field.required:
        return ""
    words = {None: "nil", True: "true", False: "false", "": '""', b"": '""'}
    default = field.default
    known = type(default) is not int and default in words
    return f" = {words[default] if known else default}"


def fields_text(struct: type[msgspec.Struct]) -> str:
    kinds = typing.get_type_hints(struct, vars(ledger_messages) | vars(wire))
    return ", ".join(
        f"{field.name} {type_name(kinds[field.name])}{default_text(field)}"
        for field in msgspec.structs.fields(struct)
    )


@pytest.mark.parametrize("name", sorted(STRUCTS))
def test_the_tables_of_the_protocol_say_what_the_code_does(name: str) -> None:
    head = [str(TAGS[name]), name] if name in TAGS else [name]
    found = [row for row in rows() if row[: len(head)] == head]
    assert len(found) == 1, f"PROTOCOL.md must have one row that begins with {head}"
    assert found[0][len(head)] == fields_text(STRUCTS[name])


def test_the_protocol_names_no_message_that_is_not_there() -> None:
    tagged = {row[1]: int(row[0]) for row in rows() if row[0].isdigit()}
    assert tagged == TAGS


@pytest.mark.parametrize(
    ("head", "codes"),
    [
        ("closing code", CLOSING_CODES),
        ("refused code", REFUSED_CODES),
        ("request code", REQUEST_CODES),
    ],
)
def test_the_tables_of_codes_say_what_the_code_does(head: str, codes: frozenset[str]) -> None:
    (table,) = re.findall(rf"^\| {head} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", PROTOCOL, re.MULTILINE)
    listed = re.findall(r"^\| (\w+) \|", table, re.MULTILINE)
    assert sorted(listed) == sorted(codes)


def test_every_refusal_of_the_rules_is_in_the_table_of_streams() -> None:
    section = PROTOCOL.split("## 4.")[1].split("## 5.")[0]
    said_elsewhere = {"bad_level"}
    assert set(re.findall(r"refused `(\w+)`", section)) == REFUSED_CODES - said_elsewhere


def test_tags_and_first_fields_let_an_older_daemon_go_on() -> None:
    assert len(set(TAGS.values())) == len(TAGS)
    for name, tag in TAGS.items():
        first = STRUCTS[name].__struct_fields__[:2]
        if 2 <= tag <= 16 or 19 <= tag <= 31:
            assert first == ("stream", "seq"), name
        elif 48 <= tag <= 63 or 80 <= tag <= 127:
            assert first[0] == "id", name


def test_unions_hold_what_their_side_may_say() -> None:
    def names(union: object) -> set[str]:
        return {each.__name__ for each in typing.get_args(union)}

    events = {name for name, tag in TAGS.items() if 2 <= tag <= 16}
    requests = {name for name, tag in TAGS.items() if 48 <= tag <= 63 or tag >= 80}
    assert names(wire.Event) == events
    assert names(wire.FromAgent) == events | {"Hello", "Resume", "Drain"}
    assert names(wire.FromQuery) == requests | {"Hello"}
    assert names(wire.ToAgent) == {"Welcome", "Ack", "Drained", "Refused", "Error"}
    assert names(wire.ToQuery) == {"Welcome", "Answer", "Error"}


def test_all_is_exact() -> None:
    public = set(STRUCTS) | {"Event", "FromAgent", "FromQuery", "ToAgent", "ToQuery"}
    public |= {"OF_ITS_SESSION", "OF_THIS_MOMENT"}
    assert set(wire.__all__) == public


def test_messages_are_arrays_with_trailing_defaults() -> None:
    for name, struct in STRUCTS.items():
        config = struct.__struct_config__
        assert config.array_like, name
        assert not config.forbid_unknown_fields, f"{name} must ignore what a later version appends"
        required = [field.required for field in msgspec.structs.fields(struct)]
        assert required == sorted(required, reverse=True), name


def test_each_message_says_what_it_is() -> None:
    for name, struct in STRUCTS.items():
        assert inspect.getdoc(struct), name


def test_lone_surrogates_survive_and_join() -> None:
    halves = "\U0001f600".encode("utf-16-be", "surrogatepass")
    high, low = (chr(int.from_bytes(halves[at : at + 2], "big")) for at in (0, 2))
    decoder = msgspec.msgpack.Decoder(wire.FromAgent)
    joined = ""
    for seq, half in enumerate((high, low), 1):
        sent = wire.Token(1, seq, half.encode("utf-8", "surrogatepass"))
        came = decoder.decode(msgspec.msgpack.encode(sent))
        assert isinstance(came, wire.Token)
        joined += came.text.decode("utf-8", "surrogatepass")
    assert joined.encode("utf-16", "surrogatepass").decode("utf-16") == "\U0001f600"
    with pytest.raises(UnicodeEncodeError):
        msgspec.msgpack.encode(wire.Retry(1, 1, high))


def codes_given() -> set[tuple[str, str]]:
    """(where, code) of every error code that stands in the source of the daemon."""
    place_of_code = {"ProtocolError": 0, "Error": 0, "Refusal": 0, "Problem": 0, "_unknown": 0}
    place_of_code |= {"refuse": 2, "Refused": 2, "BadArgument": 3}
    found = set()
    for path in sorted((Path(__file__).parents[4] / "walld").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            place = place_of_code.get(name, len(node.args))
            if place < len(node.args) and isinstance(node.args[place], ast.Constant):
                code = node.args[place]
                assert isinstance(code, ast.Constant)
                found.add((path.name, str(code.value)))
    return found


def test_every_code_that_the_daemon_gives_is_in_a_table() -> None:
    given = codes_given()
    assert len(given) > 10
    known = CLOSING_CODES | REFUSED_CODES | REQUEST_CODES
    assert {each for each in given if each[1] not in known} == set()
