"""Version 1 is read by Tevatron itself. Version 2 is in no registry: `train_v2` reads as its TrainDataset does."""

import json
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from datasets import Dataset, load_dataset

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.export.formats import export
from helpers.finished_run import CHUNK_IDS, QUERY_IDS, QUERY_TEXTS, TENANTS, finished_run
from helpers.runs import put
from helpers.triplet_rows import triplet_rows

TEXTS = dict(zip(CHUNK_IDS, ("one\n\n- a list\ttab", 'He said "no"', "naïve ☃ \\n", "plain"), strict=True))


def load(file: Path, tmp_path: Path) -> Dataset:
    return load_dataset("json", data_files=str(file), split="train", cache_dir=str(tmp_path / "cache"))


def train_v1(row: dict[str, Any]) -> tuple[str, list[str], list[str]]:
    """The query, its positives and its negatives, as Tevatron 1 tokenizes them."""
    from tevatron.datasets.preprocessor import TrainPreProcessor

    read = TrainPreProcessor(Letters(), 999, 999)(row)
    return "".join(read["query"]), *(["".join(one) for one in read[kind]] for kind in ("positives", "negatives"))


class Letters:
    """A tokenizer whose tokens are characters, so that texts come back whole."""

    def encode(self, text: str, *, add_special_tokens: bool, max_length: int, truncation: bool) -> list[str]:
        assert (add_special_tokens, truncation) == (False, True)
        return list(text[:max_length])


def train_v2(row: dict[str, Any], corpus: dict[str, str]) -> tuple[str, list[str], list[str]]:
    passages = [[corpus[docid] for docid in row[f"{kind}_document_ids"]] for kind in ("positive", "negative")]
    return row["query_text"], *passages


@pytest.mark.slow
@pytest.mark.parametrize(("split", "query"), [("train", 0), ("validation", 2)])
def test_both_layouts_give_the_same_training_rows(split: str, query: int, tmp_path: Path) -> None:
    export(finished_run(str(tmp_path / "run")), "tevatron", tmp_path / "out")
    old, new = (load(tmp_path / "out" / layout / f"{split}.jsonl", tmp_path) for layout in ("v1", "v2"))
    documents = load(tmp_path / "out" / "v2" / "corpus.jsonl", tmp_path)
    assert documents.column_names == ["docid", "text"]
    corpus = dict(zip(documents["docid"], documents["text"], strict=True))
    assert len(corpus) == len(documents) == len(TENANTS) * len(CHUNK_IDS)
    assert {unquote(docid.split("/", 1)[1]): text for docid, text in corpus.items()} == TEXTS
    assert old["query_id"] == new["query_id"]
    assert [unquote(name.split("/", 1)[1]) for name in old["query_id"]] == [QUERY_IDS[query]] * len(TENANTS)
    for one, other in zip(old, new, strict=True):
        text, positives, negatives = train_v2(other, corpus)
        assert (text, positives) == (QUERY_TEXTS[query], [TEXTS[CHUNK_IDS[0]], TEXTS[CHUNK_IDS[2]]])
        assert negatives == [TEXTS[CHUNK_IDS[1]], TEXTS[CHUNK_IDS[3]]]
        assert train_v1(one) == (text, [" " + found for found in positives], [" " + found for found in negatives])
        assert [passage["docid"] for passage in one["positive_passages"]] == other["positive_document_ids"]


def test_ids_are_one_word_and_map_back(tmp_path: Path) -> None:
    export(finished_run(str(tmp_path / "run")), "tevatron", tmp_path / "out")
    with (tmp_path / "out" / "id_map.jsonl").open(encoding="utf8") as file:
        known = {(row["kind"], row["exported"]): (row["tenant"], row["id"]) for row in map(json.loads, file)}
    rows = load(tmp_path / "out" / "v2" / "train.jsonl", tmp_path)
    assert all(name.split() == [name] for row in rows for name in (row["query_id"], *row["negative_document_ids"]))
    assert {known["query", name] for name in rows["query_id"]} == {(tenant, QUERY_IDS[0]) for tenant in TENANTS}
    named = {known["passage", name] for row in rows for name in row["negative_document_ids"]}
    assert named == {(tenant, CHUNK_IDS[place]) for tenant in TENANTS for place in (1, 3)}


def test_mined_documents_are_the_corpus_with_their_latest_text(run: Run, tmp_path: Path) -> None:
    early = triplet_rows([("q", "d1", ["d2"]), ("lone", "d3", [])], source="click_one_hop", scored=False)
    late = triplet_rows([("a", "d2", ["d1"])], source="click_one_hop", scored=False)
    put(run, "triplets", pa.concat_tables([on(early, 1, "text of d2"), on(late, 2, "newer")]))
    export(run, "tevatron", tmp_path / "out")
    documents = load(tmp_path / "out" / "v2" / "corpus.jsonl", tmp_path)
    assert dict(zip(documents["docid"], documents["text"], strict=True)) == {
        "d1": "text of d1",
        "d2": "newer",
        "d3": "text of d3",
    }
    assert load(tmp_path / "out" / "v1" / "train.jsonl", tmp_path)["query_id"] == ["a", "q"]
    assert "1 queries have no negative" in (tmp_path / "out" / "README.md").read_text()
    assert not (tmp_path / "out" / "id_map.jsonl").exists()


def on(rows: pa.Table, day: int, text: str) -> pa.Table:
    """The triplets as mined on a day, with the text that the document d2 had then."""
    texts = [row | {"date": date(2026, 1, day)} for row in rows.to_pylist()]
    for row in texts:
        row["positive"] = text if row["positive_id"] == "d2" else row["positive"]
    return pa.Table.from_pylist(texts, schema=rows.schema)
