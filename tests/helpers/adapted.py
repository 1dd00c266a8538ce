"""A small build to adapt to, whose words name topics, and a real encoder of 8 numbers for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
import yaml

from darklode.flows import open_systems
from darklode.flows.jobs.adapt_encoder import hand_over, steps
from darklode.flows.runs import SETTINGS, write_inputs, write_run
from darklode.pipeline.base.artifacts import Output, Run, Tables
from darklode.pipeline.base.errors import DoesNotFit
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.serve.adapter_check import require_fit
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.train.fit.stage import TRAIN_STAGE
from darklode.pipeline.train.release.verdict import VERDICT_STAGE
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.pooling import VectorSearchSettings
from darklode.schemas.run_inputs import AdapterInputs, BenchmarkInputs
from darklode.schemas.settings import CacheSettings, Settings
from darklode.schemas.tables import TABLES
from helpers.runs import execute, put, read
from helpers.tiny_bert import tiny_bert
from helpers.training_labels import put_training_labels

TENANT = "acme"
SIDES = {"train": 40, "validation": 12, "test": 16}


def word(number: int) -> str:
    """A word for each number, none of which is near to another."""
    letters = "bdfgklmnprst"
    return "".join(letters[number // 12**place % 12] + "aeiou"[(number + place) % 5] for place in range(4))


def build_to_adapt(folder: Path, sides: dict[str, int] = SIDES, tenant: str = TENANT) -> Run:
    """Each query asks for a topic of which two chunks of one document speak; the second is judged not relevant.

    The first test query shares its positive with the first train query; the last train query is spelled as the last
    test query is.
    """
    run, n = Run(str(folder)), sum(sides.values())
    named = [(split, number) for split, count in sides.items() for number in range(count)]
    topics = {one: word(place * 7) for place, one in enumerate(named)}
    last = "test", sides["test"] - 1
    topics["train", sides["train"] - 1] = topics[last]
    ids = [f"{split}-{number:03}" for split, number in named]
    chunks = [
        {
            "tenant": tenant, "chunk_id": f"{one}#{part}", "doc_id": f"{one}-{part}", "position": 0, "start": 0,
            "end": 9, "text": f"{topic} {word(900 + place * 3 + part)} {word(40 + part)}", "title": None,
            "heading": None, "content_hash": f"{place:016}{part:016}",
        }
        for place, (one, topic) in enumerate(zip(ids, topics.values(), strict=True))
        for part in range(3)
    ]  # fmt: skip
    queries = {
        "tenant": [tenant] * n, "query_id": ids, "text": [f"how {topic}" for topic in topics.values()],
        "n_words": [2] * n, "language": ["en"] * n, "language_score": [1.0] * n, "cluster_id": list(range(n)),
        "n_represented": [1] * n, "split": [split for split, _ in named],
    }  # fmt: skip
    right = {one: f"{one}#0" for one in ids} | {"test-000": "train-000#0"}
    labels = [(one, text, 1) for one, text in right.items()] + [(one, f"{one}#1", 0) for one in ids]
    qrels = {
        "tenant": [tenant] * len(labels), "query_id": [one for one, _, _ in labels],
        "chunk_id": [text for _, text, _ in labels], "relevance": [value for *_, value in labels],
        "weight": [0.9 if value else 0.2 for *_, value in labels], "source": ["judge"] * len(labels),
    }  # fmt: skip
    verdicts = {name: qrels[name] for name in ("tenant", "query_id", "chunk_id")}
    verdicts |= {"judge_id": ["j"] * len(labels), "relevant": [value > 0 for *_, value in labels]}
    verdicts |= {"probability": [0.9 if value else 0.2 for *_, value in labels]}
    triplets = [
        {
            "tenant": tenant, "triplet_id": one, "query_id": one, "query": one, "split": one.partition("-")[0],
            "positive_id": right[one], "positive": "", "negative_ids": [], "negatives": [], "negative_scores": [],
            "source": "pooled",
        }
        for one in ids
        if not one.startswith("test")
    ]  # fmt: skip
    for name, rows in (("queries", queries), ("qrels", qrels), ("verdicts", verdicts)):
        put(run, name, TABLES[name].rows(rows))
    for name, listed in (("chunks", chunks), ("triplets", triplets)):
        put(run, name, pa.Table.from_pylist(listed, schema=TABLES[name].schema))
    put_training_labels(run)
    write_run(run, BenchmarkInputs(docs="docs", queries="queries"), settings_for(folder.parent))
    return run


def judged_by(run: Run, encoder: SentenceTransformersSettings) -> Run:
    """The run again, its labels given by an encoder judge with this encoder."""
    judge_id = f"encoder-1:{encoder.encoder_id()}:kept=float16:0123456789abcdef:0.5"
    verdicts = run.tables("verdicts").read("verdicts")
    column = verdicts.schema.get_field_index("judge_id")
    named = verdicts.set_column(column, verdicts.schema.field(column), pa.repeat(judge_id, verdicts.num_rows))
    put(run, "verdicts", named)
    return run


def of_tenants(folder: Path, words: Mapping[str, str], sides: dict[str, int] = SIDES) -> Run:
    """A run `both` of several tenants' rows, whose texts and queries begin with the tenant's word."""
    run, rows = Run(str(folder / "both")), defaultdict[str, list[pa.Table]](list)
    for place, (tenant, word) in enumerate(words.items()):
        one = build_to_adapt(folder / f"tenant-{place}", sides, tenant)
        for name in ("queries", "chunks", "qrels", "training_labels", "verdicts", "triplets"):
            table = one.tables(name).read(name)
            if "text" in table.column_names and word:
                column = table.schema.get_field_index("text")
                said = pc.binary_join_element_wise(word, table["text"], " ")
                table = table.set_column(column, table.schema.field(column), said)
            if "content_hash" in table.column_names:
                column, mark = table.schema.get_field_index("content_hash"), f"{crc32(word.encode()):08x}"
                said = pc.binary_replace_slice(table["content_hash"], 0, 8, mark)
                table = table.set_column(column, table.schema.field(column), said)
            rows[name].append(table)
    for name, tables in rows.items():
        put(run, name, pa.concat_tables(tables))
    write_run(run, BenchmarkInputs(docs="docs", queries="queries"), settings_for(folder))
    return run


def settings_for(root: Path) -> Settings:
    """Settings whose cache lies below a folder."""
    return Settings(cache=CacheSettings(root=str(root / "cache")))


def model_in(root: Path) -> SentenceTransformersSettings:
    """A BERT of 8 numbers with weights at random, made where it is not there yet."""
    folder = root / "model"
    return SentenceTransformersSettings(
        model=str(folder if folder.exists() else tiny_bert(folder)), device="cpu", query_prompt="ask "
    )


def base_for(*runs: Run, root: Path) -> BaseEncoder:
    """The encoder to adapt, with the runs as sources."""
    sources = tuple(TrainingSource(run, number, mined=False, text_characters=100) for number, run in enumerate(runs))
    return BaseEncoder(
        model_in(root), CacheSettings(root=str(root / "cache")), VectorSearchSettings(device="cpu"), sources
    )


def shipped_adapter(
    root: Path,
    source: Run,
    encoder: SentenceTransformersSettings | None = None,
    method: Literal["linear", "full"] = "linear",
) -> Run:
    """A trained encoder, handed over whatever its verdict was."""
    settings = settings_for(root).model_copy(
        update={"adapt": AdaptSettings(method=method, max_steps=50, batch_size=16, learning_rates=(1e-2,))}
    )
    encoder = encoder or model_in(root)
    base, out = replace(base_for(source, root=root), encoder=encoder), Run(str(root / "adapter"))
    for step in steps(base, settings):
        out.execute(step.plan(out), step.execute)
    trained, verdict = read(out, "adaptation_trials"), read(out, "adapter_verdict")[0]
    weights = out.tables("adapter_weights").read("adapter_weights")
    log = out.tables("training_log").read("training_log")
    kept = weights["trial"].to_pylist()  # folds train the selected setting alone
    rows = [row for row in trained if row["share"] == 1 and row["trial"] in kept]
    whole = pa.Table.from_pylist(rows, TABLES["adaptation_trials"].schema)

    def tried(_tables: Tables, output: Output) -> None:
        for name, rows in (("adaptation_trials", whole), ("adapter_weights", weights), ("training_log", log)):
            output.write(name, rows)
        output.facts["parameters"] = 1

    row = verdict | {"shipped": "adapted", "share": 1.0}
    decided = pa.Table.from_pylist([row], TABLES["adapter_verdict"].schema)
    execute(out, TRAIN_STAGE, tried)
    execute(out, VERDICT_STAGE, lambda _, output: output.write("adapter_verdict", decided))
    out.store.write(SETTINGS, yaml.safe_dump(settings.model_dump(mode="json")).encode())
    encoders = {"tiny": encoder.model_dump(mode="json")}
    write_run(
        source, BenchmarkInputs(docs="docs", queries="queries"), Settings(cache=settings.cache, encoders=encoders)
    )
    write_inputs(out, AdapterInputs(runs=[source.store.url], encoder="tiny"))
    hand_over(out, base, settings, [source.store.url])
    return out


TRIALS = {"3e-05": (2.0, 1.5), "0.0003": (1.2, 0.4)}
"""Losses at steps 50 and 100."""


def adapted_tables(run: Run) -> Run:
    """What `darklode adapt` and `adapt preview` leave, made by hand: two trials, the second of which is chosen."""
    log = [
        {"trial": trial, "step": step, "loss": loss, "validation": 0.4 + trial * step / 1000, "replaced": replaced}
        | {"judged": 0.5, "short": 0.0, "spread": 0.9}
        for trial, losses in enumerate(TRIALS.values())
        for step, loss, replaced in zip((0, 50, 100), (None, *losses), (None, None, 0.25), strict=True)
    ]
    trials = [
        {"trial": trial, "setting": setting, "share": share, "step": 100, "validation": 0.4 + trial * share / 10}
        | {"queries": 120}
        for trial, setting in enumerate(TRIALS)
        for share in (0.0, 0.5, 1.0)
    ]
    pairs = [
        {"system": "adapted", "other": "base", "measure": measure, "part": part, "difference": difference}
        | {"low": difference - 0.02, "high": difference + 0.02, "p": 0.01, "p_holm": 0.02, "detectable": 0.03}
        | {"wins": 30, "losses": 10, "queries": 60, "clusters": 50}
        for measure in ("R@10", "nDCG@10")
        for part, difference in (("own positive", 0.05), ("shared positive", -0.1))
    ]
    verdict = {"tenant": TENANT, "shipped": "adapted", "reason": "nDCG@10 +0.050", "part": "own positive"}
    verdict |= {"control": "adapted, labels: shuffled", "over_control": 0.01, "over_control_low": -0.01}
    verdict |= {
        "over_control_high": 0.03,
        "queries": 60,
        "difference": 0.05,
        "low": 0.03,
        "high": 0.07,
        "detectable": 0.03,
        "setting": "0.0003",
    }
    reached = [
        {"system": name, "measure": "nDCG@10", "value": 0.4, "queries": 120, "label_free": name == "base"}
        for name in ("base", "perfect")
    ]
    listed = ("base_ids", "base_titles", "adapted_ids", "adapted_titles")
    swap = [
        {"tenant": TENANT, "query": "<b>how", "searches": 9, "overlap": 1}
        | dict(zip(listed, (["a", "b"], ["A", "B <i>"], ["b", "c"], ["B <i>", "C"]), strict=True)),
        {"tenant": TENANT, "query": "same", "searches": 2, "overlap": 10}
        | dict(zip(listed, (["a"], ["A"], ["a"], ["A"]), strict=True)),
    ]
    rows = {"training_log": log, "adaptation_trials": trials, "evaluation_pairs": pairs, "headroom": reached}
    rows |= {"adapter_verdict": [verdict | {"share": 1.0, "validation_queries": 120}], "encoder_swap": swap}
    for name, listed_rows in rows.items():
        put(run, name, pa.Table.from_pylist(listed_rows, schema=TABLES[name].schema))
    write_inputs(run, AdapterInputs(runs=["runs/first"], encoder="tiny"))
    return run


def refused(adapter: Path, run: Path) -> str:
    """What `adapt check` says of an adapter and a run; empty where all fits."""
    with open_systems.open_adapter_check(str(adapter), str(run)) as check:
        findings = list(check.findings())
        try:
            require_fit(check.adapter, check.index, findings)
        except DoesNotFit as error:
            return str(error).partition(" does not fit ")[2]
    assert findings[-1].subject == "first ten"
    return ""
