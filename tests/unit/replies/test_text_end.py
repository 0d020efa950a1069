"""How a text ends, in the scripts people write."""

from __future__ import annotations

import time

import pytest

from walld.replies.text_end import fence_open, is_blank, unfinished

WHOLE = [
    # sentence ends by script
    "All done.",
    "Really?",
    "Yes!",
    "Well...",
    "Well…",
    "Wait?!",
    "完成了。",
    "真的吗？",
    "太好了！",
    "終わりました。",
    "すごいですね〜",
    "｡ﾟ終わり｡",
    "다 끝났습니다.",
    "هل انتهيت؟",
    "انتهى.",
    "کام ہو گیا۔",
    "काम हो गया।",
    "समाप्त॥",
    "কাজ শেষ।",
    "պատրաստ է։",
    "պատրաստ է:",  # an Armenian full stop as keyboards type it
    "τελείωσε;",  # a Greek question mark as keyboards type it
    "τελείωσε\u037e",
    "ሥራው ተጠናቀቀ።",
    "ပြီးပါပြီ။",
    "ចប់ហើយ។",
    "ཚར་སོང་།",
    "סיימתי.",
    "готово.",
    "ᠳᠠᠭᠤᠰᠪᠠ᠃",
    "ߞߎߡߊߓߊ߹",
    # what closes behind the end is looked through
    'He said "done."',
    "He said “done.”",
    "Er sagte: „Fertig.“",
    "Er sagte: »Fertig.«",
    "Il a dit : « C'est fini. »",
    "「終わりました。」",
    "『終わり。』",
    "(He was tired.)",
    "[see above.]",
    "**Done.**",
    "_Done._",
    "~~Done.~~",
    "Done.'",
    "It's over.)”",
    "Done.\n\n",
    "Done.\u00a0\u200b",
    "Done.\u200f",
    "انتهى.\u200e",
    # emoji and symbols end a message
    "Great job 🎉",
    "Great job 👍🏽",
    "Family 👨‍👩‍👧",
    "Love ❤️",
    "Info ℹ️",
    "Press 1️⃣",
    "From 🇩🇪",
    "From 🇩🇪🇫🇷",
    "Done ✓",
    "Done ✔",
    "© ®",
    "Hope it helps :)",
    "Hope it helps :-D",
    "Bye <3",
    ":)",
    "so funny xD",
    "^_^",
    # citations stand behind the end
    "It is so. [1]",
    "It is so.[1][2]",
    "It is so. [^3]",
    "It is so.【4†source】",
    "It is so.¹²",
    # structure that can stand last
    "```py\nx = 1\n```",
    "- item:\n  ```py\n  x\n  ```",
    "~~~\nx\n~~~",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    "- One.\n- Two.",
    "See https://example.com/a/.",
    "See https://example.com/a/",
    "<div>\n</div>",
    "The sum is $x$",
    "$$\nx = 5\n$$",
    "42.",
    "The answer:\n\n42.",
]

MID_SENTENCE = [
    "Hello world",
    "Hello ",
    "Hello\n",
    "The answer is 42",
    "x²",
    "你好世界",
    "終わりまし",
    "ユーザー",
    "다 끝났습니",
    "مرحبا",
    "काम हो गया है",  # ends in a vowel sign: a mark, no letter
    "สวัสดี",
    "γειά",
    "Привет",
    "cafe\u0301",  # a combining accent
    'He said "done',
    "He said “done",
    "He said (done)",
    "Er sagte „fertig“",
    "「終わり」",
    "**bold**",
    "run `make test`",
    "see [here](https://example.com/a)",
    "see https://example.com/a",
    "- apples\n- pears",
    # signs behind which something must come
    "First,",
    "First, ",
    "Here is the list:",
    "以下の通り：",
    "一、",
    "你好，",
    "你好\uff0c",
    "you are 83",
    "item x3",
    "أولا،",
    "one;",
    "But I —",
    "well-",
    "and/",
    "a & ",
    "x =",
    "a →",
    "(",
    "He said (",
    "He said “",
    'He said "',
    "Done. (",
    'Done. "',
    "Done. “",
    "Il a dit. « ",
    "Fine. *",
    "name_of_",
    "grew by 100%",
    "costs 5 €",
    "costs $5",
    "array[1]",
    "τέλος:",
    "done;",
    "see [1]",
    # half of something
    "Great \ud83d",
    "From 🇩",
    "Family 👨\u200d",
    "1\ufe0f",
    "cut \ufffd",
    # a table row
    "| a | b |\n|---|---|\n| 1 | 2",
    "| a |",
    "| Name | Va",
    "| a | b | c |\n|---|---|---|\n| 1 | 2 |",
]

MID_STRUCTURE = [
    "# Title",
    "Text.\n\n## Next steps.",
    "##",
    "Text.\n\n---",
    "Text.\n\n***",
    "Title\n=====",
    "Text.\n- ",
    "Text.\n* ",
    "Text.\n-",
    "- Done.\n- [ ]",
    "1. One.\n2.",
    "1. One.\n2. Two.\n3)",
    "> ",
    "Text.\n>",
    "| a | b |\n|---|---|",
    "| a | b |\n|:--|",
    "a | b\n--|--",
]

TABLE_REASONS = {
    "| a | b |\n|---|---|\n| 1 | 2",
    "| a |",
    "| a | b | c |\n|---|---|---|\n| 1 | 2 |",
}


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("text", WHOLE)
def test_a_text_that_can_be_the_end(text: str) -> None:
    assert unfinished(_bytes(text)) is None


@pytest.mark.parametrize("text", MID_SENTENCE)
def test_a_text_that_goes_on(text: str) -> None:
    expected = "mid_structure" if text in TABLE_REASONS else "mid_sentence"
    assert unfinished(_bytes(text)) == expected


@pytest.mark.parametrize("text", MID_STRUCTURE)
def test_a_last_line_that_announces_another(text: str) -> None:
    assert unfinished(_bytes(text)) == "mid_structure"


def test_halves_of_a_character_that_meet_are_whole() -> None:
    assert unfinished(b"Great " + _bytes("\ud83c") + _bytes("\udf89")) is None


def test_only_the_tail_is_looked_at_and_it_may_start_inside_a_character() -> None:
    for shift in range(4):
        assert unfinished(_bytes("x" * shift + "終" * 5000 + "。")) is None
        assert unfinished(_bytes("x" * shift + "終" * 5000)) == "mid_sentence"


def test_bytes_that_are_no_text_are_judged_too() -> None:
    assert unfinished(b"\xff\xfe Done.") is None
    assert unfinished(b"Done \xe2\x82") == "mid_sentence"
    assert unfinished(b"") is None


@pytest.mark.parametrize(
    ("text", "is_open"),
    [
        ("```py\nx = 1", True),
        ("```py\nx = 1\n", True),
        ("```py\nx = 1\n``", True),
        ("```py\nx = 1\n```", False),
        ("```py\nx = 1\n```\nDone.", False),
        ("```", True),
        ("~~~\nx\n```", True),
        ("~~~\nx\n~~~", False),
        ("````md\n```py\nx\n```\n", True),
        ("````md\n```py\nx\n```\n````", False),
        ("```\nx\n````", False),
        ("```\nx\n```py", True),
        ("- ```py\n  x", True),
        ("1. ```py\n   x\n   ```", False),
        ("> ```\n> x", True),
        ("> ```\n> x\n> ```", False),
        ("Use ```inline``` here", False),
        ("```inline``` here", False),
        ("no fence", False),
        ("``two``", False),
        ("", False),
    ],
)
def test_code_fences(text: str, is_open: bool) -> None:
    assert fence_open(_bytes(text)) is is_open


@pytest.mark.parametrize(
    ("text", "blank"),
    [
        ("", True),
        (" \n\t", True),
        ("\u3000\u00a0", True),
        ("\u200b", True),
        ("x", False),
        (" 終 ", False),
    ],
)
def test_blank_text(text: str, blank: bool) -> None:
    assert is_blank(_bytes(text)) is blank


@pytest.mark.parametrize(
    "unit",
    ["- ", "> ", "1. ", "|-", "[1] ", " ", "```\n", "`", "🇩", "“", "*", ":-", "⁰", "| "],
)
def test_whoever_writes_the_text_does_not_choose_how_long_judging_takes(unit: str) -> None:
    """Tens of milliseconds; were the time exponential or square in the length, minutes."""
    long = _bytes(unit) * (512 * 1024 // len(_bytes(unit)))
    started = time.process_time()
    for text in (long, long + b"x", b"```\n" + long, long + b"\n```\n" + long):
        fence_open(text)
        unfinished(text)
        is_blank(text)
    assert time.process_time() - started < 20
