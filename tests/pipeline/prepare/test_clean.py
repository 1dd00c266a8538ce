"""Cleaning as a stage: the filters in their order, and nothing vanishes."""

import contextlib
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import EverythingDropped
from darklode.pipeline.prepare.clean import CLEAN, clean
from darklode.schemas.label_tables import JUDGMENTS
from darklode.schemas.settings import CleanSettings
from helpers.cleaning import DOCUMENTS, OPEN, cleaned, raw
from helpers.runs import execute, put, read


def test_masking_reaches_rejects_too(run: Run) -> None:
    cleaned(
        run,
        ["test jo@example.com", "a b c d e f g h jo@example.com", "how are plans billed"],
        noise=True,
        max_percentile=60,
    )
    written = b"".join(
        path.read_bytes() for path in Path(run.store.url, "tables").rglob("*.parquet") if "given" not in path.name
    )
    assert b"jo@example" not in written
    assert all("jo@" not in str(row) for row in read(run, "rejects") + read(run, "cleaned_queries"))


SIGNING = ["rotate the signing secret", "rotating a signing secret", "rotate signing secrets"]


def test_a_duplicate_of_a_query_that_another_stands_for_names_the_one_kept(run: Run) -> None:
    cleaned(run, [*SIGNING, SIGNING[1].upper(), SIGNING[2].upper()], deduplicate=True, max_per_cluster="auto")
    (kept,) = read(run, "cleaned_queries")
    gone = read(run, "rejects")
    assert {row["stage"] for row in gone} == {"clean.duplicates", "clean.diversity"}
    assert {row["represented_by"] for row in gone} == {kept["query_id"]} == {"q00001"}
    assert kept["n_represented"] == 5


def test_a_duplicate_of_a_query_that_goes_unrepresented_names_nobody(run: Run) -> None:
    odd = "how would I go about replacing what signs our events"
    cleaned(run, [odd, odd.upper(), *SIGNING], deduplicate=True, n_clusters=1, max_per_cluster=1)
    (kept,) = read(run, "cleaned_queries")
    assert kept["text"] in SIGNING
    assert kept["n_represented"] == 3
    by = {row["id"]: row["represented_by"] for row in read(run, "rejects")}
    assert (by["q00000"], by["q00001"]) == (None, None)
    assert list(by.values()).count(kept["query_id"]) == 2


def test_keep_all_describes_and_drops_nothing(run: Run) -> None:
    texts = ["test", "reset password", "reset password", "ein deutscher Satz über Passwörter und Konten", "x" * 400]
    cleaned(run, texts, keep_all=True, noise=True, language="en", deduplicate=True, max_per_cluster=1, n_clusters=2)
    kept = read(run, "cleaned_queries")
    assert [row["text"] for row in kept] == texts
    assert all(row["language"] for row in kept)
    assert [row["n_represented"] for row in kept] == [1] * 5


GERMAN = [
    "Wie kann ich mein Passwort zurücksetzen",
    "Warum wird die Rechnung nicht angezeigt",
    "Gibt es eine Möglichkeit, das Konto zu sperren",
]


@pytest.mark.parametrize(
    ("texts", "options", "first", "remedy"),
    [
        (["test", "asdf"], {"noise": True}, "clean.noise 2 (test string 2)", "Loosen clean.noise (false"),
        (
            [*GERMAN, "test"],
            {"noise": True, "language": "en"},
            "clean.language 3 (language de 3); clean.noise 1",
            "=de,",
        ),
    ],
)
def test_where_nothing_is_left_the_rejects_are_written_and_the_error_names_the_rule(
    run: Run, texts: list[str], options: dict[str, object], first: str, remedy: str
) -> None:
    for _ in range(2):  # it is never up to date, so the same command says the same again
        with pytest.raises(EverythingDropped) as failed:
            cleaned(run, texts, **options)
        assert str(failed.value).startswith(f"cleaning dropped every query: {first}")
        assert remedy in str(failed.value)
        assert sorted(str(row["payload"]) for row in read(run, "rejects")) == sorted(texts)
        assert read(run, "cleaned_queries") == []
    cleaned(run, texts)
    assert len(read(run, "cleaned_queries")) == len(texts)


def test_funnel_names_the_steps(run: Run) -> None:
    manifest = cleaned(run, ["test", "reset my password", "reset my password"], noise=True, deduplicate=True)
    assert [step.step for step in manifest.funnel] == [
        "clean.noise",
        "clean.language",
        "clean.length",
        "clean.duplicates",
        "clean.diversity",
    ]
    assert manifest.funnel[3].dropped == {"duplicate": 1}


WORDS = st.sampled_from("reset rotate secret webhook retry the a how to test 日本 user@example.com { } plan".split())


QUERY = st.lists(WORDS, max_size=8).map(" ".join)


@settings(max_examples=25, deadline=None)
@given(queries=st.lists(st.tuples(QUERY, st.sampled_from("ab")), min_size=1, max_size=40))
def test_rows_in_are_rows_out_and_rejects(
    queries: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = Run(str(tmp_path_factory.mktemp("run")))
    texts, tenants = [text for text, _ in queries], [tenant for _, tenant in queries]
    with contextlib.suppress(EverythingDropped):
        cleaned(
            run,
            texts,
            tenants,
            noise=True,
            min_percentile=25,
            max_percentile=75,
            language="en",
            deduplicate=True,
            max_per_cluster=1,
        )
    kept, gone = read(run, "cleaned_queries"), read(run, "rejects") if "rejects" in run.parts() else []
    assert {row["query_id"] for row in kept} | {row["id"] for row in gone} == {f"q{i:05d}" for i in range(len(texts))}
    assert len(kept) + len(gone) == len(texts)
    tenant_of = {row["query_id"]: row["tenant"] for row in kept}
    assert all(tenant_of[row["represented_by"]] == row["tenant"] for row in gone if row["represented_by"])
    represented = sum(int(str(row["n_represented"])) for row in kept)
    lent = sum(row["represented_by"] is not None for row in gone)
    assert represented == len(kept) + lent


def cleaned_with_judged(run: Run, texts: list[str], judged: list[int], **options: object) -> dict[object, object]:
    """Number of represented queries by id of those kept, where people judged the queries with these numbers."""
    put(run, "raw_queries", raw(texts))
    put(run, "documents", DOCUMENTS)
    rows = [
        {"tenant": "default", "query_id": f"q{n:05d}", "item_id": "keys", "level": "document", "relevance": 1}
        for n in judged
    ]
    put(run, "judgments", pa.Table.from_pylist(rows, schema=JUDGMENTS.schema))
    settings = CleanSettings.model_validate(OPEN | options)
    execute(run, CLEAN.reading("judgments"), lambda tables, output: clean(tables, output, settings, seed=1))
    return {row["query_id"]: row["n_represented"] for row in read(run, "cleaned_queries")}


def test_judged_queries_are_kept_whatever_a_rule_says(run: Run) -> None:
    texts = ["usb", "hub", "how do I return a cable that does not work", "cable"]
    assert cleaned_with_judged(run, texts, [1, 3], min_percentile=80).keys() == {"q00001", "q00002", "q00003"}
    assert cleaned_with_judged(run, texts, [], min_percentile=80).keys() == {"q00002"}


def test_of_equal_queries_the_judged_one_is_kept(run: Run) -> None:
    assert cleaned_with_judged(run, ["usb", "USB", "hub"], [1], deduplicate=True) == {"q00001": 2, "q00002": 1}
