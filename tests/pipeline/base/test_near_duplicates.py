"""Near-duplicates share a key: which queries do, and which do not."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darklode.pipeline.base.artifacts.database import scratch
from darklode.pipeline.base.near_duplicates import MAX_LETTERS, near_keys
from darklode.pipeline.base.relations import materialize

NEAR = [
    ("create api key", "create api key?"),
    ("Reset my PASSWORD", "reset passwords"),
    ("how do I export tickets", "ticket export"),
    ("reset password", "reset pasword"),
    ("reset password", "rseet password"),
    ("reset password", "reset passwordd"),
    ("reset password", "reset passwprd"),
    ("log in", "login"),
    ("e-mail settings", "email settings"),
    ("rechnungen herunterladen", "rechnungen heruntrladen"),
    ("パスワードを変更する", "パスワードを変更 する"),
    ("ｆｕｌｌ ｗｉｄｔｈ", "full width"),
    ("x" * (MAX_LETTERS + 1), "X" * (MAX_LETTERS + 1)),
]
FAR = [
    ("css", "csv"),
    ("pel-1101", "pel-1102"),
    ("iphone 11", "iphone 12"),
    ("reset password", "change password"),
    ("reset password", "reset password of an admin"),
    ("reset password", "rset pasword"),
    ("", ""),
    ("?!", "?!"),
]


def keys(texts: list[str], tenants: list[str] | None = None) -> list[set[int]]:
    """The keys of each text."""
    with scratch() as connection:
        rows = {
            "n": np.arange(len(texts)),
            "tenant": tenants or ["t"] * len(texts),
            "text": pa.array(texts, pa.string()),
        }
        connection.register("given", pa.table(rows))
        found = near_keys(connection, materialize(connection, "FROM given"))
        sets: list[set[int]] = [set() for _ in texts]
        for n, key in connection.sql(f"SELECT n, key FROM {found}").fetchall():
            sets[n].add(key)
        return sets


def test_what_is_near_and_what_is_not() -> None:
    pairs = [*NEAR, *FAR]
    found = keys([text for pair in pairs for text in pair])
    near = [bool(found[2 * number] & found[2 * number + 1]) for number in range(len(pairs))]
    assert near == [True] * len(NEAR) + [False] * len(FAR)


def test_tenants_share_no_key() -> None:
    one, other = keys(["reset password", "reset password"], ["a", "b"])
    assert not one & other


def test_keys_stay_what_they_are() -> None:
    """They are kept in files: of "css", its letters and its words."""
    assert keys(["css"]) == [{5144120406954195424, 611181632253084134}]


LETTERS = st.text("abcdefgh ", min_size=8, max_size=30).filter(lambda text: len(text.replace(" ", "")) > 5)


@pytest.mark.slow
@given(texts=st.lists(LETTERS, min_size=5, max_size=20), data=st.data())
def test_any_slip_of_one_letter_is_near(texts: list[str], data: st.DataObject) -> None:
    slips = []
    for text in texts:
        place = data.draw(st.integers(0, len(text) - 2))
        letter = data.draw(st.sampled_from("abxyz"))
        slips += [
            text[:place] + text[place + 1 :],
            text[:place] + letter + text[place:],
            text[:place] + letter + text[place + 1 :],
            text[:place] + text[place + 1] + text[place] + text[place + 2 :],
        ]
    found = keys([*texts, *slips])
    own, theirs = found[: len(texts)], found[len(texts) :]
    assert all(theirs[number] & own[number // 4] for number in range(len(slips)))
