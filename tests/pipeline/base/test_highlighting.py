"""Texts as a page shows them: words that are marked, and code apart from prose, also where it was cut."""

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from darklode.pipeline.base.highlighting import COUNT_FENCES_SQL, Highlighter, Piece, TextBlock, fold_case
from darklode.pipeline.base.markdown import count_fences
from darklode.pipeline.base.terms import Analyzer, tokens, words


def marked(query: str, text: str) -> list[str]:
    return [piece.text for piece in Highlighter.of_terms(Analyzer(), query).pieces(text) if piece.marked]


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        ("rotate a key", "Rotating KEYS, and key_rotation.", ["Rotating", "KEYS", "key", "rotation"]),
        ("where is it", "It is where it was", []),
        ("価格の変更", "新しい価格です", ["価格"]),
        ("reset", "ＲＥＳＥＴ it", ["ＲＥＳＥＴ"]),
        ("<b>", "a <b> & b", ["b", "b"]),
        ("", "nothing asked", []),
        ("key", "", []),
    ],
)
def test_terms_are_marked_as_they_are_searched_for(query: str, text: str, expected: list[str]) -> None:
    assert marked(query, text) == expected


@pytest.mark.parametrize(
    "text", ["", "a", "key", "key a key", "keykey\n keys\tkey ", "新しい価格です key", "\u202ekey\x00"]
)
def test_nothing_of_the_text_is_lost(text: str) -> None:
    marker = Highlighter.of_terms(Analyzer(), "key 価格")
    assert "".join(piece.text for piece in marker.pieces(text)) == text
    assert words(plain(marker.blocks(text))) == words(text)


@pytest.mark.parametrize("text", ["How_do I reset?", "製品の価格 ไทย हिन्दी", "_", "naïve café’s"])
def test_tokens_stand_where_words_are_found(text: str) -> None:
    assert [text[start:end].lower() for start, end in tokens(text)] == words(text)


def fixed_lines(blocks: list[TextBlock]) -> list[str]:
    """Lines of code."""
    return [plain_line(line) for block in blocks if block.kind == "fixed" for line in block.lines]


def plain_line(line: list[Piece]) -> str:
    return "".join(piece.text for piece in line)


FENCED = "Do this:\n```sh\nkey rotate\nkey show\n```\nDone."


@pytest.mark.parametrize("cut", range(len(FENCED)))
def test_code_that_was_cut_is_still_code(cut: int) -> None:
    """What follows a cut at a line's beginning is code where it is code in the whole text."""
    if cut and FENCED[cut - 1] != "\n":
        return
    fences = COUNT_FENCES_SQL.format(text="$before")
    fenced = duckdb.sql(f"SELECT {fences} % 2 = 1", params={"before": FENCED[:cut]}).fetchall()[0][0]
    blocks = Highlighter.of_parts(["key"]).blocks(FENCED[cut:], fenced=fenced)
    expected = [line for line in ("key rotate", "key show") if FENCED.index(line) >= cut]
    assert fixed_lines(blocks) == expected
    assert [piece.text for block in blocks for line in block.lines for piece in line if piece.marked] == ["key"] * len(
        expected
    )


PARTS = ["```", "~~~", "`", "````", "\n", "\n", "\r\n", "\r", "\t", "  ", "sh", "key", "\x0b", "\u2028", "\x85"]


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(text=st.lists(st.sampled_from(PARTS), max_size=30).map("".join))
@example("```npm install```\n")
@example("a\r```\rkey")
def test_sql_and_python_read_the_same_fences(text: str) -> None:
    (counted,) = duckdb.sql(f"SELECT {COUNT_FENCES_SQL.format(text='$text')}", params={"text": text}).fetchall()[0]
    assert counted == count_fences(text)
    lines = fixed_lines(Highlighter.of_parts([]).blocks(f"{text}\n\nlast"))
    assert ("last" in lines) == (counted % 2 == 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Use **the key** now", [("key", ("strong",))]),
        ("新しい**価**格 of *key*s", [("価", ("strong",)), ("格", ()), ("key", ())]),
        ("`rotate key` and [my key](https://x.test/key)", [("key", ("code",)), ("key", ()), ("key", ("small",))]),
        ("## The key\n\n1. key", [("key", ()), ("key", ())]),
        ("| key | b |\n|--|--|\n| *key* | c |", [("key", ()), ("key", ("em",))]),
        ("**some ke**y", []),
    ],
)
def test_words_are_marked_in_markdown(text: str, expected: list[tuple[str, tuple[str, ...]]]) -> None:
    blocks = Highlighter.of_terms(Analyzer(), "key 価格").blocks(text)
    lines = [line for block in blocks for line in (*block.lines, *(cell for row in block.rows for cell in row))]
    found = [(piece.text, piece.styles) for line in lines for piece in line if piece.marked]
    assert found == expected


def test_parts_of_words_are_marked_whatever_their_case_and_accents() -> None:
    marker = Highlighter.of_parts(["résu", "KEY-r"])
    found = [piece.text for piece in marker.pieces("Resume, RÉSUMÉ: a monkey's key ring") if piece.marked]
    assert found == ["Resume", "RÉSUMÉ", "monkey", "key", "ring"]
    assert fold_case("Ünïcode") == "unicode"


LONG = (
    "Intro to it all.\n\n"
    + "Filler words here. " * 12
    + "\n\n```sh\nkey rotate\nkey show\n```\n\n- one\n- two\n"
    + "end " * 90
)


def plain(blocks: list[TextBlock]) -> str:
    return "\n".join(plain_line(line) for block in blocks for line in block.lines)


def test_a_clip_keeps_its_lines_and_begins_with_that_of_the_first_mark() -> None:
    clip = Highlighter.of_terms(Analyzer(), "rotate").clip(LONG, 120)
    assert plain(clip).startswith("… key rotate\nkey show\none\ntwo\nend ")
    assert plain(clip).endswith("end …")
    assert clip[0].kind == "fixed", "code that began before the clip"
    assert [piece.text for line in clip[0].lines for piece in line if piece.marked] == ["rotate"]
    assert clip[1].kind == "bullet"


@pytest.mark.parametrize("characters", [40, 77, 120, 300, 5000])
@pytest.mark.parametrize("query", ["rotate", "nothing of it", "end", "filler"])
def test_a_clip_is_a_piece_of_the_text_about_as_long_as_asked(query: str, characters: int) -> None:
    marker = Highlighter.of_terms(Analyzer(), query)
    clip = plain_line(marker.excerpt(LONG, characters))
    piece = clip.removeprefix("… ").removesuffix(" …")
    assert piece in LONG
    assert clip == piece or len(LONG) > characters
    assert characters / 3 < len(piece) <= characters or piece == LONG.rstrip()
    blocks = marker.clip(LONG, characters)
    assert set(words(plain(blocks))) <= set(words(piece))
    assert plain(blocks).startswith("… ") == clip.startswith("… ")
    assert plain(blocks).endswith(" …") == clip.endswith(" …")


def test_a_mark_far_into_a_long_line_is_in_the_clip() -> None:
    text = "word " * 200 + "needle " + "word " * 200
    clip = plain(Highlighter.of_terms(Analyzer(), "needle").clip(text, 100))
    assert clip.startswith("… word")
    assert "needle" in clip
