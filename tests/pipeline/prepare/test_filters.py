"""The filters by length and of exact duplicates."""

from darklode.pipeline.base.artifacts import Run
from helpers.cleaning import cleaned, reasons
from helpers.runs import read


def test_length_keeps_the_percentiles_themselves(run: Run) -> None:
    texts = [" ".join(["word"] * n) for n in range(1, 10)]
    cleaned(run, texts, min_percentile=25, max_percentile=75)
    assert [row["n_words"] for row in read(run, "cleaned_queries")] == [3, 4, 5, 6, 7]
    assert sorted(map(str, reasons(run).values())) == ["too long"] * 2 + ["too short"] * 2


def test_length_is_measured_within_the_tenant(run: Run) -> None:
    texts = ["a b", "a b", "a b", *["a b c d e f g h"] * 3]
    cleaned(run, texts, ["x"] * 3 + ["y"] * 3, min_percentile=25, max_percentile=75)
    assert len(read(run, "cleaned_queries")) == 6


def test_duplicates_name_who_stands_for_them(run: Run) -> None:
    cleaned(run, ["Reset  my password", "reset my PASSWORD", "delete a route"], deduplicate=True)
    kept = {row["text"]: row["n_represented"] for row in read(run, "cleaned_queries")}
    assert kept == {"Reset  my password": 2, "delete a route": 1}
    assert [(row["id"], row["represented_by"], row["stage"]) for row in read(run, "rejects")] == [
        ("q00001", "q00000", "clean.duplicates")
    ]


def test_duplicates_are_told_whatever_the_form_of_their_letters(run: Run) -> None:
    cleaned(run, ["ｆｉｌｅ format", "ﬁle format", "file format"], deduplicate=True)
    assert [row["text"] for row in read(run, "cleaned_queries")] == ["ｆｉｌｅ format"]


def test_duplicates_stay_within_the_tenant(run: Run) -> None:
    cleaned(run, ["same text"] * 2, ["a", "b"], deduplicate=True)
    assert len(read(run, "cleaned_queries")) == 2
