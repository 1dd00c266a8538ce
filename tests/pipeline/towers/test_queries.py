"""What is learned from: every query once, and nothing that is equal or near to what the runs test with."""

from hashlib import md5
from pathlib import Path

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Output, Run
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.ingest.queries import INGEST_QUERIES
from darklode.pipeline.towers.held_out import CLUSTERS
from darklode.pipeline.towers.queries import QUERIES_STAGE, content, held_out_clusters, read_files, tower_queries
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.schemas.settings import IngestSettings
from darklode.schemas.tables import TABLES
from helpers.adapted import SIDES, TENANT, build_to_adapt
from helpers.runs import execute, put, read

from .conftest import MORE, Distilled

SIZES = {"first": 200, "second": 60}
"""Training queries of two runs."""


def gathered(
    out: Run,
    sources: list[TrainingSource],
    files: list[str],
    held_out: int = 5,
    seed: int = 1,
    hold_out: str | None = CLUSTERS,
) -> dict[str, str]:
    """The side of each query; passages are left out."""
    execute(out, INGEST_QUERIES, lambda _, output: read_files(files, output, IngestSettings(tenant=TENANT)))
    execute(
        out,
        QUERIES_STAGE,
        lambda tables, output: tower_queries(
            tables, output, sources, tenant=TENANT, held_out=held_out, seed=seed, hold_out=hold_out
        ),
    )
    rows = read(out, "tower_queries")
    return {str(row["query"]): str(row["split"]) for row in rows if row["source"] != "documents"}


def unlike(number: int) -> str:
    """A query for each number, none near to another."""
    return md5(str(number).encode()).hexdigest()[:12].translate(str.maketrans("0123456789", "ghijklmnop"))


def source_of(run: Run, *, mined: bool = False) -> TrainingSource:
    return TrainingSource(run, 0, mined, 100)


def test_what_is_equal_or_near_to_a_test_query_is_left_out_and_counted(tmp_path: Path) -> None:
    run, out = build_to_adapt(tmp_path / "run"), Run(str(tmp_path / "out"))
    tested = [str(row["text"]) for row in read(run, "queries") if row["split"] == "test"]
    near = [f"{tested[0]}s", " ".join(reversed(tested[1].split())), tested[2].replace("how", "hwo")]
    (tmp_path / "more.txt").write_text("\n".join([*near, tested[3], *map(unlike, range(90))]))
    sides = gathered(out, [source_of(run)], [str(tmp_path / "more.txt")])
    assert not set(near) & set(sides)
    assert {sides[text] for text in tested} == {"test"}
    assert list(sides.values()).count("validation") == 5
    funnel = out.manifests()["tower_queries"].funnel[0]
    assert funnel.dropped["near to a test or held-out query"] == len(near)
    facts = out.manifests()["tower_queries"].facts
    n_passages = facts["passages"] + funnel.dropped.get("passage near to a held-out query", 0)
    # the last train query is spelled as the last test query is
    assert funnel.rows_in == sum(SIDES.values()) - 1 + len(near) + 90 + n_passages
    assert facts["passages"] > 100
    assert facts["also asked elsewhere, of test"] == 2


def test_which_queries_are_held_out_follows_from_seed_and_text(tmp_path: Path) -> None:
    run = build_to_adapt(tmp_path / "run")
    words = [unlike(number) for number in range(90)]
    found = []
    for name, order, seed in (("a", words, 1), ("b", words[::-1], 1), ("c", words, 2)):
        (tmp_path / f"{name}.txt").write_text("\n".join(order))
        found.append(gathered(Run(str(tmp_path / name)), [source_of(run)], [str(tmp_path / f"{name}.txt")], seed=seed))
    assert found[0] == found[1] != found[2]
    few = gathered(Run(str(tmp_path / "few")), [source_of(run)], [], held_out=1000)
    assert 0 < list(few.values()).count("unseen") <= (SIDES["train"] - 1 + SIDES["validation"]) // 10


def test_a_small_source_is_held_out_with_its_documents(tmp_path: Path) -> None:
    runs = [build_to_adapt(tmp_path / name, {"train": n, "validation": 0, "test": 4}) for name, n in SIZES.items()]
    first = [str(row["text"]) for row in read(runs[0], "queries")]
    (tmp_path / "more.txt").write_text("\n".join([*map(unlike, range(90)), first[0]]))
    sources = [TrainingSource(run, number, False, 100) for number, run in enumerate(runs)]
    out = Run(str(tmp_path / "out"))
    sides = gathered(out, sources, [str(tmp_path / "more.txt")], held_out=1000, hold_out=None)
    own = {str(row["text"]) for row in read(runs[1], "queries") if row["split"] == "train"}
    assert {sides[text] for text in own if text in sides} <= {"unseen", "test"}, "also if another source has it"
    assert [text for text, side in sides.items() if side == "unseen"] != []
    rows = read(out, "tower_queries")
    assert {row["index"] for row in rows if row["source"] == "documents"} == {0}
    assert out.manifests()["tower_queries"].facts["held out"] == runs[1].store.url
    with_files_held = gathered(
        Run(str(tmp_path / "files")), sources, [str(tmp_path / "more.txt")], 50, hold_out="files"
    )
    assert sum(side == "unseen" for text, side in with_files_held.items()) == 50, "the surplus is not trained on"
    assert not {unlike(number) for number in range(90)} & {
        text for text, side in with_files_held.items() if side in {"train", "validation"}
    }


def test_validation_takes_a_tenth_of_what_is_not_held_out(tmp_path: Path) -> None:
    run, out = build_to_adapt(tmp_path / "run", {"train": 30, "validation": 0, "test": 2}), Run(str(tmp_path / "out"))
    (tmp_path / "more.txt").write_text("\n".join(map(unlike, range(270))))
    sides = gathered(out, [source_of(run)], [str(tmp_path / "more.txt")], held_out=1000, hold_out="files")
    counts = {side: list(sides.values()).count(side) for side in ("train", "validation", "unseen")}
    assert counts["unseen"] == 270
    assert counts["validation"] in {2, 3}, "not all that is left"
    assert counts["train"] > 20


def test_passages_are_left_out_on_request(tmp_path: Path) -> None:
    run, out = build_to_adapt(tmp_path / "run"), Run(str(tmp_path / "out"))
    execute(out, INGEST_QUERIES, lambda _, output: read_files([], output, IngestSettings(tenant=TENANT)))
    execute(
        out,
        QUERIES_STAGE,
        lambda tables, output: tower_queries(
            tables, output, [source_of(run)], tenant=TENANT, held_out=5, seed=1, with_passages=False
        ),
    )
    assert {row["source"] for row in read(out, "tower_queries")} == {"queries"}
    assert out.manifests()["tower_queries"].facts["passages"] == 0


def test_clusters_are_held_out_whole() -> None:
    texts = [f"{unlike(topic)} {unlike(1000 + number)}" for topic in range(16) for number in range(4)]
    held = held_out_clusters(texts, 8, 1)
    assert 0 < len(held) <= 8
    assert held == held_out_clusters(texts, 8, 1)
    assert held_out_clusters(texts, 0, 1) == []


def mined_log(run: Run) -> None:
    """A log whose test query was asked in two spellings before, too."""
    spelled = [("q1", "vepu kora"), ("q1", "VEPU  KORA"), ("q2", "muno"), ("q3", "sile bado"), ("q4", " ")]
    spelled += [(f"w{number}", unlike(number)) for number in range(40)]
    n = len(spelled)
    columns = {
        "tenant": pa.array([TENANT] * n), "date": pa.array([20000] * n, pa.int32()).cast(pa.date32()),
        "query_id": pa.array([one for one, _ in spelled]), "query": pa.array([text for _, text in spelled]),
        "searches": pa.array([1] * n, pa.int64()),
    }  # fmt: skip
    put(run, "query_spellings", TABLES["query_spellings"].rows(columns))
    for name in ("query_clusters", "documents"):
        put(run, name, TABLES[name].empty())
    for name, rows in (
        ("triplets", [("q2", "muno", "train")]),
        ("mined_test", [("q1", "vepu kora", "unseen")]),
    ):
        put(run, name, of_schema(name, rows))


def empty(kind: pa.DataType) -> object:
    """A value that may stand in a column."""
    return [] if pa.types.is_list(kind) else pa.scalar(0, pa.int32()).cast(kind).as_py()


def of_schema(name: str, rows: list[tuple[str, str, str]]) -> pa.Table:
    """Rows of a table of which only tenant, query_id, query and the last one's side matter here."""
    filled = []
    for query_id, query, side in rows:
        row = {one.name: empty(one.type) for one in TABLES[name].schema}
        known = {"tenant": TENANT, "query_id": query_id, "query": query, "split": side, "kind": side}
        filled.append(row | {key: value for key, value in known.items() if key in row})
    return pa.Table.from_pylist(filled, schema=TABLES[name].schema)


def test_all_spellings_of_a_logs_test_query_are_of_the_test(tmp_path: Path) -> None:
    run = Run(str(tmp_path / "run"))
    mined_log(run)
    sides = gathered(Run(str(tmp_path / "out")), [source_of(run, mined=True)], [])
    assert {text for text, side in sides.items() if side == "test"} == {"vepu kora", "VEPU  KORA"}
    assert sides["muno"] in {"train", "validation", "unseen"}
    assert " " not in sides
    assert content(source_of(run, mined=True)).count(" ") == 3


def test_a_run_of_test_queries_alone_is_refused(tmp_path: Path) -> None:
    run = build_to_adapt(tmp_path / "run", {"train": 1, "validation": 0, "test": 1})
    with pytest.raises(ArtifactError, match="no training query that does not nearly duplicate"):
        gathered(Run(str(tmp_path / "out")), [source_of(run)], [])


def test_the_students_queries_are_of_no_test(distilled: Distilled) -> None:
    rows = read(distilled.out, "tower_queries")
    learned = {str(row["query"]) for row in rows if row["split"] == "train"}
    tested = {str(row["text"]) for row in read(distilled.source, "queries") if row["split"] == "test"}
    assert not learned & tested
    assert len(learned) > MORE - 60
    assert [row["text"] for row in read(distilled.out, "raw_queries")][:1] != []


def test_rows_of_files_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    out = Run(str(tmp_path / "out"))
    (tmp_path / "more.jsonl").write_text('{"text": "one"}\n' * 9 + "{ broken\n")

    def read_all(_: object, output: Output) -> None:
        read_files([str(tmp_path / "more.jsonl")], output, IngestSettings())

    execute(out, INGEST_QUERIES, read_all)
    assert [row["table"] for row in read(out, "rejects")] == ["raw_queries"]
