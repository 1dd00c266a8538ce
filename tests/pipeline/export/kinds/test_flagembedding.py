import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from datasets import Dataset, load_dataset

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ExportError
from darklode.pipeline.export import grouped_triplets
from darklode.pipeline.export.formats import export
from helpers.finished_run import FUSED, QUERY_TEXTS, TENANTS, finished_run
from helpers.runs import put
from helpers.triplet_rows import triplet_rows

SIZE = 4


def load(file: Path, cache: Path) -> Dataset:
    return load_dataset("json", data_files=str(file), split="train", cache_dir=str(cache))


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().decode().split("\n")[:-1]]


def groups(file: Path, cache: Path) -> Any:
    """What FlagEmbedding trains on: groups of SIZE passages, a positive first, with the teacher's scores."""
    from FlagEmbedding.abc.finetune.embedder.AbsArguments import AbsEmbedderDataArguments
    from FlagEmbedding.abc.finetune.embedder.AbsDataset import AbsEmbedderTrainDataset

    given = AbsEmbedderDataArguments(
        train_data=[str(file)], cache_path=str(cache), train_group_size=SIZE, knowledge_distillation=True
    )
    return AbsEmbedderTrainDataset(given, tokenizer=None)


@pytest.mark.slow
def test_each_query_is_one_row_that_its_reader_takes(tmp_path: Path) -> None:
    export(finished_run(str(tmp_path / "run")), "flagembedding", tmp_path / "out")
    for split, query in (("train", 0), ("validation", 2)):
        rows = load(tmp_path / "out" / f"{split}.jsonl", tmp_path / "cache")
        assert set(rows.column_names) == {"query", "pos", "neg", "pos_scores", "neg_scores", "prompt", "type"}
        assert rows["query"] == [QUERY_TEXTS[query]] * len(TENANTS)
        for row in rows:
            assert row["pos"] == ["one\n\n- a list\ttab", "naïve ☃ \\n"]
            assert row["neg"] == ['He said "no"', "plain"]
            assert row["pos_scores"] == pytest.approx([FUSED[0], FUSED[2]])
            assert row["neg_scores"] == pytest.approx([FUSED[1], FUSED[3]])
            assert row["type"] == "normal"
        found = groups(tmp_path / "out" / f"{split}.jsonl", tmp_path / "cache")
        assert len(found) == len(TENANTS)
        for text, passages, scores in found:
            known = dict(zip(row["pos"] + row["neg"], row["pos_scores"] + row["neg_scores"], strict=True))
            assert text == QUERY_TEXTS[query]
            assert passages[0] in row["pos"]
            assert set(passages[1:]) == set(row["neg"])
            assert (len(passages), scores) == (SIZE, [known[passage] for passage in passages])


def test_negatives_are_those_of_all_triplets_without_the_positives(run: Run, tmp_path: Path) -> None:
    given = [("q", "a", ["n1", "b", "n2"]), ("q", "b", ["n3", "n1", "a'"]), ("bare", "c", []), ("bare", "d", [])]
    # A query that only has another one's positive as its negative, and one of whose positives has none.
    given += [("own", "e", ["f"]), ("own", "f", []), ("half", "g", ["n4"]), ("half", "h", [])]
    put(run, "triplets", triplet_rows(given))
    export(run, "flagembedding", tmp_path / "out")
    rows = {row["query"]: row for row in lines(tmp_path / "out" / "train.jsonl")}
    assert list(rows) == ["what is half?", "what is q?"]
    assert rows["what is q?"]["pos"] == ["text of a", "text of b"]
    assert rows["what is q?"]["neg"] == ["text of n1", "text of n3", "text of n2"]
    assert rows["what is q?"]["neg_scores"] == pytest.approx([0.9, 0.9, 0.7])
    assert rows["what is half?"]["pos"] == ["text of g", "text of h"]
    assert "2 queries have no negative" in (tmp_path / "out" / "README.md").read_text()


def test_mined_triplets_without_scores_are_rows_without_scores(run: Run, tmp_path: Path) -> None:
    mined = triplet_rows([("q", "doc/1", ["doc/2"])], source="click_one_hop", scored=False)
    put(run, "triplets", pa.concat_tables([mined, triplet_rows([("p", "doc/1", ["doc/2"])])]))
    export(run, "flagembedding", tmp_path / "out")
    rows = lines(tmp_path / "out" / "train.jsonl")
    assert [list(row) for row in rows] == [["query", "pos", "neg", "prompt", "type"]] * 2
    assert "no `pos_scores`" in (tmp_path / "out" / "README.md").read_text()


def test_a_run_of_which_no_row_can_be_made_is_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="run `darklode build` or `darklode mine` to completion"):
        export(run, "flagembedding", tmp_path / "out")
    put(run, "triplets", triplet_rows([("q", "a", ["b"]), ("q", "b", ["a"])]))
    with pytest.raises(ExportError, match="also a positive of its query"):
        export(run, "flagembedding", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_blocks_do_not_show(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(f"q{n % 7}", f"p{n}", [f"n{n + place}" for place in range(n % 4)]) for n in range(40)]
    put(run, "triplets", pa.concat_tables([triplet_rows(rows, split=split) for split in ("train", "validation")]))
    export(run, "flagembedding", tmp_path / "whole")
    monkeypatch.setattr(grouped_triplets, "BYTES_PER_BLOCK", 300)
    export(run, "flagembedding", tmp_path / "blocks")
    for file in ("train.jsonl", "validation.jsonl", "README.md"):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "blocks" / file).read_bytes()
    assert len(lines(tmp_path / "whole" / "train.jsonl")) == 7
