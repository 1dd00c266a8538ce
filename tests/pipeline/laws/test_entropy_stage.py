"""Means of entropy: by split, with intervals over clusters and none of a single one."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from darklode.pipeline.base.artifacts import Output, Tables
from darklode.pipeline.base.sharding import Spread, here
from darklode.pipeline.laws import entropy_stage
from darklode.pipeline.laws.entropy_stage import ENTROPY_STAGE, EntropySystem, entropies, few_negatives, means
from darklode.pipeline.train.data import encoding
from darklode.schemas.law_tables import CONTRASTIVE_ENTROPY
from darklode.schemas.settings import CacheSettings
from helpers.adapted import SIDES, base_for, model_in, of_tenants
from helpers.elsewhere import Elsewhere
from helpers.runs import execute, put
from helpers.training_labels import put_training_labels


def rows(entropy: list[float], group: list[str], split: list[str]) -> pa.Table:
    n = len(entropy)
    about = {"tenant": ["acme"] * n, "encoder": ["e"] * n, "temperature": [0.05] * n, "negatives": [256] * n}
    ids = [str(number) for number in range(n)]
    columns = {"query_id": ids, "text_id": ids, "entropy": entropy, "group": group, "split": split}
    return CONTRASTIVE_ENTROPY.rows({**about, **columns})


def test_each_split_has_its_mean_and_one_cluster_has_no_interval() -> None:
    values = [1.0, 2.0, 3.0, 6.0, 4.0]
    test, train = means(rows(values, ["a", "a", "b", "c", "d"], ["train"] * 4 + ["test"]), 0).to_pylist()
    assert (test["split"], test["mean"], test["low"], test["high"]) == ("test", 4.0, None, None)
    assert (train["mean"], train["pairs"]) == (3.0, 4)
    assert 1.5 <= train["low"] < 3 < train["high"] <= 6
    assert train["chance"] == pytest.approx(np.log(257))


def test_pairs_of_one_cluster_count_as_one_draw() -> None:
    values = np.random.default_rng(0).normal(2, 0.5, 40).repeat(10).tolist()
    group = [str(number // 10) for number in range(400)]
    together, apart = (
        means(rows(values, one, ["test"] * 400), 0).to_pylist()[0] for one in (group, [str(n) for n in range(400)])
    )
    assert together["high"] - together["low"] > 2 * (apart["high"] - apart["low"])


@pytest.mark.slow
def test_blocks_of_queries_elsewhere_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sentence_transformers")
    monkeypatch.setattr(entropy_stage, "QUERIES_PER_BLOCK", 8)
    monkeypatch.setattr(encoding, "SHARD_ROWS", 64)
    run = of_tenants(tmp_path, {"acme": "red", "beta": "blue"})
    model_in(tmp_path)

    def contents(cache: str, spread: Spread) -> list[str]:
        base = base_for(run, root=tmp_path)
        system = EntropySystem("tiny", replace(base, cache=CacheSettings(root=str(tmp_path / cache))), None, 0.05)

        def work(_tables: Tables, output: Output) -> None:
            entropies(base.sources[0], output, system, spread, tenants=["acme", "beta"], seed=7)

        run.store.delete(f"manifests/{ENTROPY_STAGE.name}.json")
        execute(run, ENTROPY_STAGE, work)
        return [run.tables(name).content(name) for name in ENTROPY_STAGE.writes]

    elsewhere = Elsewhere(run.store, 3)
    assert contents("far", elsewhere) == contents("near", here)
    assert all((tmp_path / name / "embeddings").is_dir() for name in ("far", "near"))
    assert run.tables("contrastive_entropy").rows("contrastive_entropy") == 2 * sum(SIDES.values())
    texts = [f"encode {one} texts {n} to {min(n + 63, 203)}" for one in ("acme", "beta") for n in range(0, 204, 64)]
    cut = [(one, low, high - 1) for one in ("acme", "beta") for low, high in ((0, 24), (24, 48), (48, 68))]
    assert elsewhere.names == [*texts, *(f"entropy of {one} queries {low} to {last}" for one, low, last in cut)]


@pytest.mark.parametrize(("texts", "pairs"), [(1, 0), (3, 3)])
def test_a_pair_without_a_negative_has_no_entropy_and_few_negatives_are_said(
    tmp_path: Path, texts: int, pairs: int
) -> None:
    """−log(1) would be 0, which reads as a perfect encoder."""
    pytest.importorskip("sentence_transformers")
    run = of_tenants(tmp_path, {"acme": ""})
    model_in(tmp_path)
    qrels, chunks = run.tables("qrels").read("qrels"), run.tables("chunks").read("chunks")
    positives = qrels.filter(pc.equal(qrels["relevance"], 1)).slice(0, texts)
    put(run, "qrels", positives)
    put_training_labels(run)
    put(run, "chunks", chunks.filter(pc.is_in(chunks["chunk_id"], positives["chunk_id"].combine_chunks())))
    base = base_for(run, root=tmp_path)

    def work(_tables: Tables, output: Output) -> None:
        entropies(base.sources[0], output, EntropySystem("tiny", base, None, 0.05), here, tenants=["acme"], seed=7)

    execute(run, ENTROPY_STAGE, work)
    tables = run.tables(*ENTROPY_STAGE.writes)
    assert tables.read("contrastive_entropy")["negatives"].to_pylist() == [texts - 1] * pairs
    (step,) = run.manifests()[ENTROPY_STAGE.name].funnel
    assert (step.rows_in, step.rows_out, sum(step.dropped.values())) == (texts, pairs, texts - pairs)
    said = few_negatives(tables)
    assert [f"only {texts - 1} of 256" in one for one in said] == ([True] if pairs else [])
