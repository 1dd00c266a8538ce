"""Words of scripts without spaces, by ICU's dictionaries."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from darklode.pipeline.base.segmentation import count_words, insert_spaces, sentences, spaced_column

MIXED = st.text(st.sampled_from("ab 1_-\n。?如何管理依赖パスワードを再設定ค้นหาข้อมูล한국é😀"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("如何在 k8s raycluster 中管理 python 依赖", "如何 在 k8s raycluster 中 管理 python 依赖"),
        ("パスワードを再設定する方法", "パスワード を 再 設定 する 方法"),
        ("ผมต้องการรีเซ็ตรหัสผ่าน", "ผม ต้องการ รีเซ็ต รหัส ผ่าน"),
        ("k8s集群部署", "k8s 集群 部署"),
        ("검색 엔진 max_result_window=10", "검색 엔진 max_result_window=10"),
        ("", ""),
    ],
)
def test_words_of_scripts_without_spaces(text: str, words: str) -> None:
    assert insert_spaces(text).split() == words.split()


@settings(deadline=None)
@given(MIXED)
def test_nothing_but_white_space_is_added(text: str) -> None:
    assert "".join(insert_spaces(text).split()) == "".join(text.split())


@settings(deadline=None)
@given(st.lists(MIXED, max_size=8), st.integers(1, 4))
def test_a_column_is_cut_as_its_texts_are(texts: list[str], size: int) -> None:
    pieces = [pa.array(texts[start : start + size], pa.string()) for start in range(0, len(texts), size)]
    column = pa.chunked_array(pieces, pa.string())
    assert spaced_column(column).to_pylist() == [insert_spaces(text) for text in texts]


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("如何在 k8s raycluster 中管理 python 依赖", 8),
        ("パスワードを再設定する方法。", 6),
        ("how to train DQN for 100 epochs ?", 7),
        ("max_result_window=10 - or more", 3),
        (" ... ", 0),
        ("", 0),
    ],
)
def test_words_are_counted(text: str, n: int) -> None:
    assert count_words(pa.chunked_array([[text]])).to_pylist() == [n]


def test_sentences_of_scripts_with_and_without_spaces() -> None:
    assert sentences("It fails.  Why? Restart\nit. ") == ["It fails.", "Why?", "Restart", "it."]
    assert sentences("重启服务。然后重试！") == ["重启服务。", "然后重试！"]
    assert sentences(" \n ") == []
