"""Triplets against a literal reading of their definition: who is a negative, in which order, and who never is."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

import darklode.pipeline.triplets.pooled
from darklode.pipeline.base.artifacts import Manifest, Output, Run, Tables
from darklode.pipeline.base.chunk_texts import view
from darklode.pipeline.triplets.pooled import TRIPLETS_STAGE, triplets
from darklode.schemas.label_tables import QRELS, TRAINING_LABELS
from darklode.schemas.settings import TripletSettings
from darklode.schemas.tables import CHUNKS, POOL, QUERIES, RANKINGS, TRIPLETS
from helpers.elsewhere import Elsewhere
from helpers.runs import execute, put

Row = dict[str, Any]


@dataclass
class World:
    """One tenant: its texts, its queries' splits, lists, pool and labels (no label: unread or not asked).

    The pool is the union of the top `depth`, or the best `budget` by fused score. A pair without a probability has
    none, a label that people did not give is the judge's, and a chunk is its own document unless another is named.
    """

    texts: dict[str, str]
    splits: dict[str, str]
    lists: dict[str, list[list[str]]]
    depth: int
    labels: dict[tuple[str, str], int] = field(default_factory=dict)
    budget: int = 0
    probabilities: dict[tuple[str, str], float | None] = field(default_factory=dict)
    people: set[tuple[str, str]] = field(default_factory=set)
    documents: dict[str, str] = field(default_factory=dict)
    doubts: set[tuple[str, str]] = field(default_factory=set)
    certain_from: float = 0.5

    def weight(self, query: str, chunk: str) -> float | None:
        """A label without a probability that its log-probabilities contradict has the weight 0."""
        if (query, chunk) in self.people:
            return float(self.labels[query, chunk] > 0)
        return 0.0 if (query, chunk) in self.doubts else self.probabilities.get((query, chunk))

    def is_certain(self, query: str, chunk: str) -> bool:
        weight = self.weight(query, chunk)
        return (query, chunk) in self.people or weight is None or weight >= self.certain_from

    def document(self, chunk: str) -> str:
        return self.documents.get(chunk, chunk)

    def fused(self, query: str) -> dict[str, np.float32]:
        chunks = {chunk for ranked in self.lists[query] for chunk in ranked}
        ranks = {
            chunk: [ranked.index(chunk) + 1 for ranked in self.lists[query] if chunk in ranked] for chunk in chunks
        }
        return {chunk: np.float32(sum(round(1e12 / (60 + rank)) for rank in ranks[chunk]) / 10**12) for chunk in chunks}

    def pool(self, query: str) -> set[str]:
        if self.budget:
            scores = self.fused(query)
            return set(sorted(scores, key=lambda chunk: (-float(scores[chunk]), chunk))[: self.budget])
        return {chunk for ranked in self.lists[query] for chunk in ranked[: self.depth]}


def world(number: int) -> World:
    """Few texts for many chunks, so that duplicates abound; few chunks for many negatives, so that lists fall short."""
    chance = random.Random(number)
    chunks = [f"c{n:02d}" for n in range(chance.randint(1, 40))]
    different = chance.choice([3, 12, 1_000])
    texts = {chunk: f"text {chance.randrange(different)}" for chunk in chunks}
    splits = {f"q{n}": chance.choice(["train", "train", "validation", "test"]) for n in range(chance.randint(1, 4))}
    lists = {
        query: [chance.sample(chunks, chance.randint(0, len(chunks))) for _ in range(chance.randint(1, 4))]
        for query in splits
    }
    made = World(texts, splits, lists, depth=chance.choice([1, 3, 10, 40]), budget=chance.choice([0, 0, 5, 15]))
    odds = chance.choice([(1, 8, 1), (4, 4, 2), (8, 1, 0), (1, 1, 8)])
    for query in splits:
        for chunk in sorted(made.pool(query)):
            label = chance.choices([chance.randint(1, 3), 0, None], odds)[0]
            if label is not None:
                made.labels[query, chunk] = label
                made.probabilities[query, chunk] = chance.choice([None, 0.25, 0.5, 0.75])
                made.people |= {(query, chunk)} if chance.random() < 0.1 else set()
    made.documents = {chunk: f"d{chance.randrange(20)}" for chunk in chunks}
    return made


def lay(run: Run, worlds: dict[str, World]) -> None:
    """Write the worlds' tables, a tenant each, rows in no particular order."""
    chunks, queries, rankings, pool, qrels, training_labels = [], [], [], [], [], []
    for tenant, made in worlds.items():
        own: Row = {"tenant": tenant}
        for chunk, text in made.texts.items():
            placed = {
                "doc_id": made.document(chunk),
                "position": 0,
                "start": 0,
                "end": len(text),
                "content_hash": chunk,
            }
            chunks.append(own | {"chunk_id": chunk, "text": text} | placed)
        for query, split in made.splits.items():
            described = {"n_words": 1, "language": "en", "language_score": 1.0, "cluster_id": 0, "n_represented": 1}
            queries.append(own | {"query_id": query, "text": f"{tenant} asks {query}", "split": split} | described)
            for number, ranked in enumerate(made.lists[query]):
                for rank, chunk in enumerate(ranked, start=1):
                    found = {"query_id": query, "retriever": f"r{number}", "rank": rank, "chunk_id": chunk}
                    rankings.append(own | found | {"score": 0.0})
            scores = made.fused(query)
            for chunk in made.pool(query):
                candidate = {"query_id": query, "chunk_id": chunk, "retrievers": [], "best_rank": 1}
                pool.append(own | candidate | {"fused_score": float(scores[chunk])})
        for (query, chunk), label in made.labels.items():
            source = "human" if (query, chunk) in made.people else "judge"
            pair = own | {"query_id": query, "chunk_id": chunk, "source": source, "weight": made.weight(query, chunk)}
            qrels.append(pair | {"relevance": label})
            if made.splits[query] != "test":
                is_uncertain = label > 0 and not made.is_certain(query, chunk)
                training_labels.append(pair | {"relevance": None if is_uncertain else label})
    tables = (
        (CHUNKS, chunks),
        (QUERIES, queries),
        (RANKINGS, rankings),
        (POOL, pool),
        (QRELS, qrels),
        (TRAINING_LABELS, training_labels),
    )
    for table, rows in tables:
        random.Random(1).shuffle(rows)
        put(run, table.name, pa.Table.from_pylist(rows, schema=table.schema))


def made(run: Run, worlds: dict[str, World], *, apart: bool = False, **options: object) -> Manifest:
    lay(run, worlds)
    chosen = TripletSettings.model_validate(options)
    return execute(run, TRIPLETS_STAGE, lambda tables, output: triplets(tables, output, chosen, apart=apart))


def written(run: Run) -> list[Row]:
    rows: list[Row] = run.tables("triplets").read("triplets").to_pylist()
    return rows


def learned(world: World, query: str, relevant: list[str], chosen: TripletSettings, *, apart: bool) -> list[str]:
    """The positives of a query that are likely enough and held out by no other, and of these the best."""
    before = {"train": ("validation", "test"), "validation": ("test",)}[world.splits[query]] if apart else ()
    held = {world.texts[c] for (q, c), label in world.labels.items() if label > 0 and world.splits[q] in before}

    def likely(chunk: str) -> bool:
        if world.texts[chunk] in held:
            return False
        return world.is_certain(query, chunk)

    def best(chunk: str) -> tuple[bool, int, float, float, str]:
        weight, is_human = world.weight(query, chunk), (query, chunk) in world.people
        grade = world.labels[query, chunk] if world.is_certain(query, chunk) else 1
        fused = float(world.fused(query)[chunk])
        return not is_human, -grade, 0 if weight is None else -1 - weight, -fused, chunk

    copies: dict[str, list[str]] = {}
    for chunk in relevant:
        copies.setdefault(world.texts[chunk], []).append(chunk)
    chosen_copies = [min(same, key=lambda chunk: (not likely(chunk), best(chunk))) for same in copies.values()]
    ranked = sorted(filter(likely, chosen_copies), key=best)
    if not ranked:
        unlikely = [chunk for chunk in chosen_copies if world.texts[chunk] not in held]
        ranked = sorted((chunk for chunk in unlikely if world.weight(query, chunk)), key=best)[:1]
    return ranked[: chosen.max_positives] if chosen.max_positives else ranked


def relevant_text(world: World, query: str, chunk: str) -> bool:
    """Whether the text of a chunk is relevant: its copies share one label, people's before the judge's."""
    copies = [other for (of, other) in world.labels if of == query and world.texts[other] == world.texts[chunk]]
    by_people = [other for other in copies if (query, other) in world.people]
    return any(world.labels[query, other] > 0 for other in by_people or copies)


def expected(tenant: str, world: World, chosen: TripletSettings, *, apart: bool) -> Iterable[Row]:
    for query, split in sorted(world.splits.items()):
        if split == "test":
            continue
        scores, pool = world.fused(query), world.pool(query)

        def hardest(chunk: str, scores: dict[str, np.float32] = scores) -> tuple[float, str]:
            return -float(scores[chunk]), chunk

        relevant = [chunk for chunk in pool if relevant_text(world, query, chunk)]
        labelled = [chunk for chunk in relevant if world.labels.get((query, chunk), 0) > 0]
        positives = sorted(learned(world, query, labelled, chosen, apart=apart), key=hardest)
        answering = set() if chosen.allow_same_document_negatives else {world.document(chunk) for chunk in relevant}
        judged = sorted((chunk for chunk in pool if world.labels.get((query, chunk)) == 0), key=hardest)
        beyond = sorted(set(scores) - pool, key=hardest)
        taken = {world.texts[chunk] for chunk in relevant}
        sure, unsure = [], []
        for chunks, into in [(judged, sure), (beyond, unsure)]:
            for chunk in chunks:
                if world.texts[chunk] not in taken and world.document(chunk) not in answering:
                    taken.add(world.texts[chunk])
                    into.append(chunk)
            taken |= {world.texts[chunk] for chunk in pool if (query, chunk) not in world.labels}
        for positive in positives:
            score = float(scores[positive])
            below = [chunk for chunk in unsure if float(scores[chunk]) < score - abs(score) * chosen.relative_margin]
            negatives = (sure + below)[: chosen.num_negatives]
            yield {
                "tenant": tenant,
                "query_id": query,
                "query": f"{tenant} asks {query}",
                "positive_id": positive,
                "positive": world.texts[positive],
                "negative_ids": negatives,
                "negatives": [world.texts[chunk] for chunk in negatives],
                "positive_score": score,
                "negative_scores": [float(scores[chunk]) for chunk in negatives],
                "source": "pooled",
                "weight": world.weight(query, positive),
                "via_query_id": None,
                "date": None,
                "tier": None,
                "split": split,
            }


def without_ids(rows: list[Row]) -> list[Row]:
    return [{key: value for key, value in row.items() if key != "triplet_id"} for row in rows]


@pytest.mark.slow
@examples(max_examples=18, deadline=None)
@given(
    first=st.integers(0, 2**32),
    num_negatives=st.sampled_from([1, 2, 5, 16]),
    relative_margin=st.sampled_from([0.0, 0.05, 0.3, 1.0]),
    certain_from=st.sampled_from([0.0, 0.5, 1.0]),
    max_positives=st.sampled_from([0, 1, 3]),
    allow_same_document_negatives=st.booleans(),
    apart=st.booleans(),
)
def test_triplets_are_those_of_a_literal_reading(
    first: int, apart: bool, certain_from: float, tmp_path_factory: pytest.TempPathFactory, **options: Any
) -> None:
    """Ten worlds at a time, each a tenant of its own: what one would take from another shows."""
    chosen = TripletSettings(**options)
    worlds = {f"t{number}": world(first + number) for number in range(10)}
    for made_world in worlds.values():
        made_world.certain_from = certain_from
    run = Run(str(tmp_path_factory.mktemp("triplets")))
    manifest = made(run, worlds, apart=apart, **options)
    rows = written(run)
    wanted = [row for tenant in sorted(worlds) for row in expected(tenant, worlds[tenant], chosen, apart=apart)]
    assert without_ids(rows) == sorted(wanted, key=lambda row: str(row["split"]))
    assert len({row["triplet_id"] for row in rows}) == len(rows)
    short = sum(len(row["negative_ids"]) < chosen.num_negatives for row in wanted)
    assert manifest.facts["short_of_negatives"] == short
    assert manifest.funnel[0].rows_out == len(rows)
    for row in rows:
        obey(row, worlds[row["tenant"]], chosen.num_negatives)


def test_shards_elsewhere_make_the_same_parts(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(darklode.pipeline.triplets.pooled, "SHARD_QUERIES", 4)
    monkeypatch.setattr(darklode.pipeline.triplets.pooled, "BLOCK_ROWS", 7)
    worlds = {f"t{number}": world(number) for number in range(10)}
    elsewhere, at_home = Elsewhere(run.store, 5), Run(str(tmp_path / "here"))
    here = made(at_home, worlds, apart=True)
    lay(run, worlds)

    def work(tables: Tables, output: Output) -> None:
        triplets(tables, output, TripletSettings(), apart=True, spread=elsewhere)

    there = execute(run, TRIPLETS_STAGE, work)
    assert there.outputs == here.outputs
    assert (there.funnel, there.facts) == (here.funnel, here.facts)
    assert elsewhere.names == [f"triplets {number} of 5" for number in range(1, 6)]
    assert [part.rows for part in run.parts()["triplets"]] == [19, 12]
    assert not run.store.sizes("progress/triplets")


def obey(row: Row, world: World, negatives: int) -> None:
    """The rules, one by one, for who doubts the reference."""
    query, ids = row["query_id"], row["negative_ids"]
    assert world.splits[query] == row["split"] != "test"
    assert world.labels[query, row["positive_id"]] > 0
    assert all(world.labels.get((query, chunk)) == 0 or chunk not in world.pool(query) for chunk in ids)
    assert [world.texts[chunk] for chunk in ids] == row["negatives"]
    texts = {world.texts[chunk] for (of, chunk) in world.labels if of == query and relevant_text(world, query, chunk)}
    assert not texts & set(row["negatives"])
    unlabelled = {world.texts[chunk] for chunk in world.pool(query) if (query, chunk) not in world.labels}
    assert not unlabelled & {world.texts[chunk] for chunk in ids if chunk not in world.pool(query)}
    assert len(set(row["negatives"])) == len(ids) <= negatives
    tiers = [chunk not in world.pool(query) for chunk in ids]
    assert tiers == sorted(tiers)


def simple(labels: dict[str, int], n: int = 12, depth: int = 6, texts: dict[str, str] | None = None) -> World:
    """One train query, one list c00, c01, …"""
    chunks = [f"c{number:02d}" for number in range(n)]
    named = {chunk: f"text of {chunk}" for chunk in chunks} | (texts or {})
    return World(
        named, {"q": "train"}, {"q": [chunks]}, depth, {("q", chunk): label for chunk, label in labels.items()}
    )


def negatives_of(run: Run, world: World, **options: object) -> list[list[str]]:
    made(run, {"t": world}, **options)
    return [row["negative_ids"] for row in written(run)]


def test_judged_negatives_come_first_and_mined_ones_fill_up(run: Run) -> None:
    judged = simple({"c00": 1, "c01": 0, "c04": 0})
    assert negatives_of(run, judged, num_negatives=4, relative_margin=0.0) == [["c01", "c04", "c06", "c07"]]
    assert negatives_of(run, judged, num_negatives=2) == [["c01", "c04"]]


def test_the_margin_holds_for_mined_negatives_alone(run: Run) -> None:
    """1/61 · 0.9 lies between the 7th and the 8th place: 1/67 is too near, 1/68 is not."""
    labels = {"c00": 1, "c01": 0}
    assert negatives_of(run, simple(labels), num_negatives=3, relative_margin=0.1) == [["c01", "c07", "c08"]]


def test_a_score_at_the_ceiling_is_too_near(run: Run) -> None:
    """Three chunks share a score; only one of them came into the pool."""
    lists = [["c00", "c01", "c02", "c03"], ["c01", "c02", "c00"], ["c02", "c00", "c01"]]
    texts = {f"c{number:02d}": f"text {number}" for number in range(4)}
    tied = World(texts, {"q": "train"}, {"q": lists}, 0, {("q", "c00"): 1}, budget=1)
    assert negatives_of(run, tied, relative_margin=0.0) == [["c03"]]


def test_a_judged_negative_may_outrank_its_positive(run: Run) -> None:
    assert negatives_of(run, simple({"c00": 0, "c05": 1}), num_negatives=1) == [["c00"]]


def test_many_copies_of_one_judged_text_hide_no_other(run: Run) -> None:
    """Far more copies than negatives asked for stand before the two other texts."""
    labels = {"c00": 1} | {f"c{number:02d}": 0 for number in range(1, 30)}
    copies = {f"c{number:02d}": "the same footer" for number in range(1, 28)}
    assert negatives_of(run, simple(labels, 40, 30, copies), num_negatives=3) == [["c01", "c28", "c29"]]


def test_copies_of_positives_hide_no_negative(run: Run) -> None:
    labels = {"c00": 1} | {f"c{number:02d}": 0 for number in range(1, 30)}
    copies = {f"c{number:02d}": "text of c00" for number in range(1, 29)}
    found = negatives_of(run, simple(labels, 40, 30, copies), num_negatives=2, relative_margin=0.0)
    assert found == [["c29", "c30"]]


def test_copies_of_a_text_make_one_positive_and_leave_room_for_others(run: Run) -> None:
    """A paragraph that stands in eight files is one positive; the next best texts are the others."""
    labels = {f"c{number:02d}": 1 for number in range(11)} | {"c11": 0}
    copies = {f"c{number:02d}": "the same paragraph" for number in range(8)}
    documents = {f"c{number:02d}": f"d{number}" for number in range(8)} | {"c11": "d7"}
    world = replace(simple(labels, 12, 12, copies), documents=documents)
    manifest = made(run, {"t": world}, allow_same_document_negatives=False)
    assert [row["positive_id"] for row in written(run)] == ["c00", "c08", "c09", "c10"]
    assert {text for row in written(run) for text in row["negatives"]} == set(), "of a document that answers"
    assert manifest.funnel[0].rows_in == 11
    assert manifest.funnel[0].dropped["same text as another positive of the query"] == 7


@pytest.mark.parametrize(
    ("form", "passages"),
    [
        ("title_heading_text", ["Guide\nSetup\ntext of c00", "Guide\ntext of c01"]),
        ("text", ["text of c00", "text of c01"]),
    ],
)
def test_passages_are_what_the_judge_reads_or_plain_text(run: Run, form: str, passages: list[str]) -> None:
    lay(run, {"t": simple({"c00": 1, "c01": 0})})
    chunks = run.tables("chunks").read("chunks").to_pylist()
    named = {"c00": {"title": "Guide", "heading": "Setup"}, "c01": {"title": "Guide"}}
    put(run, "chunks", pa.Table.from_pylist([row | named.get(row["chunk_id"], {}) for row in chunks], CHUNKS.schema))
    chosen = TripletSettings.model_validate({"num_negatives": 1, "text_form": form})
    execute(run, TRIPLETS_STAGE, lambda tables, output: triplets(tables, output, chosen, apart=False))
    (row,) = written(run)
    assert [row["positive"], *row["negatives"]] == passages
    if form == "title_heading_text":
        view_of = dict(zip(*_views(run), strict=True))
        assert passages == [view_of["c00"], view_of["c01"]]


def _views(run: Run) -> tuple[list[str], list[str]]:
    """Chunk ids, and what retrievers and judges read of them."""
    rows = run.tables("chunks").read("chunks")
    return rows["chunk_id"].to_pylist(), view(rows).to_pylist()


def test_copies_share_the_label_of_people_and_the_best_one_of_the_judge(run: Run) -> None:
    texts = {"c00": "one", "c01": "one", "c02": "two", "c03": "two"}
    labels = {("q", "c00"): 1, ("q", "c01"): 0, ("q", "c02"): 3, ("q", "c03"): 1}
    probabilities: dict[tuple[str, str], float | None] = {("q", "c02"): 0.1, ("q", "c03"): 0.9}
    lists = {"q": [["c00", "c01", "c02", "c03"]]}
    world = World(texts, {"q": "train"}, lists, 4, labels, probabilities=probabilities, people={("q", "c01")})
    manifest = made(run, {"t": world})
    assert [(row["positive_id"], row["negatives"]) for row in written(run)] == [("c03", ["one"])]
    assert manifest.funnel[0].dropped == {
        "uncertain by labels.training_precision": 0,
        "beyond triplets.max_positives": 0,
        "same text as another positive of the query": 1,
        "people labelled the same text not relevant": 1,
    }


def test_a_copy_of_an_unjudged_pool_member_is_not_mined(run: Run) -> None:
    copied = simple({"c00": 1, "c01": 0}, n=10, texts={"c04": "the same", "c07": "the same"})
    assert negatives_of(run, copied, num_negatives=4, relative_margin=0.0) == [["c01", "c06", "c08", "c09"]]


def test_a_shortfall_is_counted_and_not_filled(run: Run) -> None:
    manifest = made(run, {"t": simple({"c00": 1, "c01": 0}, n=6)})
    assert [row["negative_ids"] for row in written(run)] == [["c01"]]
    assert manifest.facts["short_of_negatives"] == 1


def test_a_positive_without_any_negative_is_still_a_triplet(run: Run) -> None:
    made(run, {"t": simple({"c00": 1}, n=1)})
    assert [(row["negative_ids"], row["negatives"], row["negative_scores"]) for row in written(run)] == [([], [], [])]


def test_no_positives_no_triplets(run: Run) -> None:
    manifest = made(run, {"t": simple({"c00": 0})})
    assert (written(run), manifest.facts["short_of_negatives"]) == ([], 0)


def likely(**probabilities: float | None) -> World:
    """One train query whose chunks are all relevant, and what the judge gave each."""
    given = simple(dict.fromkeys(probabilities, 1), n=8)
    given.probabilities = {("q", chunk): said for chunk, said in probabilities.items()}
    return given


def test_a_positive_that_the_judge_thinks_unlikely_is_not_learned_from_and_counted(run: Run) -> None:
    manifest = made(run, {"t": likely(c00=0.49, c01=0.5, c02=None, c03=0.1)})
    assert [row["positive_id"] for row in written(run)] == ["c01", "c02"]
    (step,) = manifest.funnel
    assert (step.rows_in, step.rows_out) == (4, 2)
    assert step.dropped == {"uncertain by labels.training_precision": 2, "beyond triplets.max_positives": 0}


def test_a_query_whose_positives_are_all_unlikely_keeps_its_best(run: Run) -> None:
    """A label that its log-probabilities contradict is never the best."""
    world = likely(c00=0.4, c01=0.45, c02=None, c03=0.1)
    world.doubts = {("q", "c02")}
    manifest = made(run, {"t": world})
    assert [row["positive_id"] for row in written(run)] == ["c01"]
    unlikely = manifest.funnel[0].dropped["uncertain by labels.training_precision"]
    assert unlikely == 3


def test_the_best_positives_of_a_query_are_learned_from_and_the_rest_is_counted(run: Run) -> None:
    manifest = made(run, {"t": likely(c00=0.75, c01=0.9, c02=0.8, c03=0.95)}, max_positives=2)
    assert {row["positive_id"] for row in written(run)} == {"c01", "c03"}
    assert manifest.funnel[0].dropped["beyond triplets.max_positives"] == 2


def test_what_people_called_relevant_is_learned_from_first_and_whatever_the_judge_says(run: Run) -> None:
    doubted = likely(c00=0.9, c01=0.01)
    doubted.people = {("q", "c01")}
    made(run, {"t": doubted}, max_positives=1)
    assert [row["positive_id"] for row in written(run)] == ["c01"]


def test_a_positive_left_out_is_no_negative(run: Run) -> None:
    made(run, {"t": likely(c00=0.9, c01=0.4)}, num_negatives=6, relative_margin=0.0)
    assert [(row["positive_id"], row["negative_ids"]) for row in written(run)] == [("c00", ["c06", "c07"])]


@pytest.mark.parametrize(("same_document", "expected"), [(False, ["c02", "c07"]), (True, ["c01", "c02"])])
def test_chunks_of_a_document_that_answers_are_negatives_only_by_setting(
    run: Run, same_document: bool, expected: list[str]
) -> None:
    """c01, judged not relevant, and c06, which nobody judged, are of the document of c00."""
    split = simple({"c00": 1, "c01": 0, "c02": 0})
    split.documents = dict.fromkeys(("c00", "c01", "c06"), "guide")
    assert negatives_of(
        run, split, num_negatives=2, relative_margin=0.0, allow_same_document_negatives=same_document
    ) == [expected]


def test_ids_name_tenant_query_and_positive(run: Run) -> None:
    twins = {"a": simple({"c00": 1, "c02": 2}), "b": simple({"c00": 1, "c02": 2})}
    made(run, twins)
    first = {(row["tenant"], row["positive_id"]): row["triplet_id"] for row in written(run)}
    assert len(set(first.values())) == 4
    assert {len(name) for name in first.values()} == {24}
    made(run, {"b": simple({"c00": 1, "c02": 1, "c01": 1, "c03": 0})}, num_negatives=3)
    again = {(row["tenant"], row["positive_id"]): row["triplet_id"] for row in written(run)}
    assert {key: again[key] for key in again if key in first} == {key: first[key] for key in first if key[0] == "b"}


def test_blocks_and_threads_change_no_byte(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    worlds = {f"t{number}": world(number) for number in range(6)}
    whole = made(run, worlds)
    rows = written(run)
    connect = duckdb.connect
    monkeypatch.setattr(duckdb, "connect", lambda config: connect(config=config | {"threads": 1}))
    assert made(run, worlds).outputs == whole.outputs
    monkeypatch.setattr(darklode.pipeline.triplets.pooled, "BLOCK_ROWS", 7)
    assert made(run, worlds).outputs == whole.outputs
    assert (written(run), len(rows) > 14) == (rows, True)
    assert run.tables("triplets").read("triplets").schema.equals(TRIPLETS.schema)


def test_without_a_judge_unlabelled_candidates_are_negatives_too(run: Run) -> None:
    """c00 is a given positive; c03, in no list, is one that no retriever found: its negatives are beyond the pool."""
    given = simple({"c00": 1, "c02": 0}, n=9)
    given.people = {("q", "c00"), ("q", "c02")}
    lay(run, {"t": given})
    settings = TripletSettings(num_negatives=4, relative_margin=0.0)
    stage = TRIPLETS_STAGE
    execute(run, stage, lambda tables, output: triplets(tables, output, settings, apart=False, is_judged=False))
    assert [row["negative_ids"] for row in written(run)] == [["c02", "c01", "c03", "c04"]]


def test_a_given_positive_that_no_retriever_found_has_negatives_from_beyond_the_pool(run: Run) -> None:
    given = simple({"c00": 1}, n=9)
    given.people = {("q", "c00")}
    given.lists = {"q": [[f"c{number:02d}" for number in range(1, 9)]]}
    lay(run, {"t": given})
    found = run.tables("pool").read("pool")
    row = found.slice(0, 1).to_pylist()[0] | {
        "chunk_id": "c00",
        "retrievers": [],
        "best_rank": None,
        "fused_score": 0.0,
    }
    put(run, "pool", pa.concat_tables([found, pa.Table.from_pylist([row], schema=POOL.schema)]))
    settings = TripletSettings(num_negatives=4, relative_margin=0.0)
    stage = TRIPLETS_STAGE
    execute(run, stage, lambda tables, output: triplets(tables, output, settings, apart=False, is_judged=False))
    assert [row["negative_ids"] for row in written(run)] == [["c07", "c08"]]
