"""What a stranger wrote cannot act on a terminal."""

import unicodedata

from walld.escape import escaped, escaped_line

MAY_STAY = "\t\n"


def test_no_control_or_surrogate_gets_through():
    for code in range(0x110000):
        category = unicodedata.category(chr(code))
        if category not in ("Cc", "Cs", "Zl", "Zp"):
            continue
        assert escaped_line(chr(code)) != chr(code), hex(code)
        if chr(code) not in MAY_STAY:
            assert escaped(chr(code)) != chr(code), hex(code)


def test_direction_marks_are_shown():
    for code in (0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xE0041):
        assert escaped(chr(code)).startswith("\\")


def test_ordinary_text_stays():
    text = "naïve – 日本語 🙂 \u200d a\\b"
    assert escaped(text) == text == escaped_line(text)
    assert escaped("a\n\tb") == "a\n\tb"


def test_forms():
    assert escaped_line("\x1b[31m\r\n\t\u202e\ud83d\U000e0041") == (
        "\\x1b[31m\\r\\n\\t\\u202e\\ud83d\\U000e0041"
    )
