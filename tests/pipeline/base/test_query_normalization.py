"""The normal form: spellings of one query meet, queries that differ in meaning do not."""

import unicodedata

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from darklode.pipeline.base.query_normalization import normal_form


def forms(texts: list[str]) -> list[str]:
    found: list[str] = normal_form(pa.array(texts, pa.string())).to_pylist()
    return found


ONE_QUERY = [
    ["reset password", "Reset  password?", "RESET “PASSWORD”!", "\treset password...", "reset, 'password'"],
    ["can't log in", "cant log in", "Can’t log-in", "can`t log in", "Can´t log in?"],
    ["what's new in 1.2.3", "Whats new in 1.2.3?!", "what‘s new (in 1.2.3)."],
    ["node.js", "Node.js?", "NODE.JS."],
    ["1 1/2 inch pipe", "1½ inch pipe"],
    ["error timeout", "error: timeout", "Error - timeout", "error — timeout"],
    ["error 429", '"error 429"', "“Error 429”?"],
    ["iphone 11 case", "iPhone™ 11 case", "ｉＰｈｏｎｅ　１１ case", "iphone\u200b 11 c\u00adase"],
    ["οδος", "ΟΔΟΣ"],
    ["café", "CAFE\u0301"],
    ["パスワード 請求書", "パスワード、請求書？", "「パスワード」請求書。"],
]  # fmt: skip
MANY_QUERIES = [
    ["c", "c++", "c#", "c+"],
    ["net", ".net"],
    ["123", "1.2.3", "1,2,3", "1 2 3"],
    ["a 1402", "a-1402", "a1402"],
    ["iphone 11", "iphone 1", "iphone"],
    ["5", "-5", "5%", "$5", "5€", '5"', "5'"],
    ["102", "10²"],
    ["grep v", "grep -v", "grep --v"],
    ["x = y", "x != y", "x y"],
    ["at&t", "at t"],
    ["reset email", "reset [email]"],
    ["o+", "o-", "o"],
    ["masse", "maße"],
    ["nodejs", "node.js"],
]


@pytest.mark.parametrize("spellings", ONE_QUERY)
def test_spellings_of_one_query(spellings: list[str]) -> None:
    assert len(set(forms(spellings))) == 1


@pytest.mark.parametrize("queries", MANY_QUERIES)
def test_what_carries_meaning_stays(queries: list[str]) -> None:
    assert len(set(forms(queries))) == len(queries)


def test_a_column_keeps_its_shape() -> None:
    column = pa.chunked_array([["A?", None, "a"], [], ["???", ""]], pa.string())
    assert normal_form(column).to_pylist() == ["a", None, "a", "???", ""]
    assert normal_form(pa.array([], pa.string())).to_pylist() == []


MARKS = "?!.,:;'\"()[]{}-–_/+#$%&*@=<>°½²…«» \u00a0\u200b"
TEXT = st.text(st.sampled_from("abcÉσς019 " + MARKS), max_size=12) | st.text(max_size=12)
TEXTS = st.lists(TEXT, min_size=50, max_size=50)  # a call costs the same for one text as for fifty
FEW = settings(max_examples=20, deadline=None)


@pytest.mark.slow
@FEW
@given(TEXTS)
def test_the_form_of_a_form_is_the_form(texts: list[str]) -> None:
    once = forms(texts)
    assert forms(once) == once


@FEW
@given(st.lists(st.text(st.characters(max_codepoint=127), max_size=12), min_size=50, max_size=50))
def test_no_letter_and_no_digit_is_lost(texts: list[str]) -> None:
    def told(text: str) -> str:
        return "".join(filter(str.isalnum, text.lower()))

    assert [*map(told, forms(texts))] == [*map(told, texts)]


@FEW
@given(st.lists(st.sampled_from(["reset", "c++", "a-1402", "node.js", "-5", "11"]), min_size=1, max_size=5))
def test_case_blanks_and_sentence_marks_make_no_other_query(words: list[str]) -> None:
    plain = " ".join(words)
    spelled = [plain, "  ".join(words).upper() + "?!", ", ".join(words), f"«{plain}».", f" {plain} - "]
    assert set(forms(spelled)) == {plain}


@FEW
@given(TEXTS)
def test_only_a_text_without_anything_has_no_form(texts: list[str]) -> None:
    unseen = ("Cc", "Cf", "Mn", "Zs", "Zl", "Zp")
    for text, found in zip(texts, forms(texts), strict=True):
        visible = {one for one in text if unicodedata.category(one) not in unseen} - set("™®©")
        assert found or not visible
