"""build-benchmark: documents and a query log in, a judged benchmark and triplets out."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import yaml
from prefect import flow
from prefect.artifacts import create_markdown_artifact, create_table_artifact

from flows import tools
from flows.config import DEFAULT_PRESET, load_settings, merge, resolve
from flows.publishing import publish_report
from flows.reporting import reporter
from flows.runs import no_run
from flows.spreading import spreading
from flows.steps import Step, run_step
from pipeline.artifacts import Output, Run, Tables, key_of
from pipeline.audit import AUDIT, audit
from pipeline.calibration import CALIBRATE, calibrate, fitted_thresholds
from pipeline.card import card
from pipeline.caveats import caveats
from pipeline.chunk import CHUNK, chunk
from pipeline.clean import CLEAN, clean
from pipeline.embedding import embed_all
from pipeline.errors import ArtifactError
from pipeline.funnel import FUNNEL_STAGE, funnel
from pipeline.ingest import INGEST_DOCUMENTS, INGEST_QUERIES, ingest_documents, ingest_queries, source_fingerprint
from pipeline.judge import ADAPTIVE_JUDGE, JUDGE, judge
from pipeline.label import LABEL, OVERRIDING_LABEL, label
from pipeline.pool import POOL_STAGE, pool
from pipeline.search import SEARCH, Factory, search
from pipeline.split import SPLIT, split
from pipeline.spread import Spread, here
from pipeline.triplets import TRIPLETS_STAGE, triplets
from pipeline.views import all_tables, views_sql
from schemas.section import Section
from schemas.settings import Settings


@flow(name="build-benchmark", persist_result=False)
def build_benchmark(
    docs: str,
    queries: str,
    out: str,
    preset: str = DEFAULT_PRESET,
    settings: dict[str, Any] | None = None,
    estimate: bool = False,
) -> None:
    """Build a labelled dataset; run again, it does only what changed.

    Args:
        docs: file or folder of documents.
        queries: file or folder of queries.
        out: the run's folder or s3:// prefix.
        preset: where the settings start from.
        settings: what differs from the preset, as nested sections.
        estimate: stop before the judge, and show what judging will take by a sample of its calls.
    """
    chosen = resolve(merge(load_settings(preset).model_dump(mode="json"), settings or {}))
    run = Run(out)
    with run.lock(), spreading(chosen.runner, run) as spread:
        record(run, docs, queries, chosen)
        tools.fetch_models(chosen)
        for step in steps(docs, queries, chosen, spread):
            if estimate and step.stage.name == JUDGE.name:
                show_estimate(run, chosen)
                return
            run_step(run, step)
        finish(run, chosen)


def steps(docs: str, queries: str, settings: Settings, spread: Spread = here) -> list[Step]:
    """The stages, in data order."""
    ingest, seed = settings.ingest, settings.seed
    retrievers = tools.retrievers(settings)
    return [
        Step(
            INGEST_DOCUMENTS,
            plain(ingest, leave="queries"),
            lambda _, output: ingest_documents(docs, output, ingest),
            lambda: {"the documents' files": source_fingerprint(docs)},
        ),
        Step(
            INGEST_QUERIES,
            plain(ingest, leave="documents"),
            lambda _, output: ingest_queries(queries, output, ingest),
            lambda: {"the queries' files": source_fingerprint(queries)},
        ),
        Step(
            CLEAN,
            plain(settings.clean) | {"seed": seed},
            lambda tables, output: clean(tables, output, settings.clean, seed=seed),
        ),
        Step(
            SPLIT,
            plain(settings.split) | {"seed": seed},
            lambda tables, output: split(tables, output, settings.split, seed=seed),
        ),
        Step(CHUNK, plain(settings.chunk), lambda tables, output: chunk(tables, output, settings.chunk)),
        Step(
            SEARCH,
            {"retrievers": tools.identities(retrievers), "search_depth": settings.pool.search_depth},
            lambda tables, output: _embed_and_search(tables, output, settings, retrievers, spread),
        ),
        Step(POOL_STAGE, plain(settings.pool), lambda tables, output: pool(tables, output, settings.pool)),
        *_judging(settings),
        Step(
            OVERRIDING_LABEL if settings.labels.human_overrides else LABEL,
            plain(settings.labels),
            lambda tables, output: label(tables, output, settings.labels),
        ),
        Step(
            TRIPLETS_STAGE, plain(settings.triplets), lambda tables, output: triplets(tables, output, settings.triplets)
        ),
        audit_step(settings),
    ]


def show_estimate(run: Run, settings: Settings) -> None:
    """Say what judging will take."""
    found = tools.judge_estimate(settings, run.tables("queries", "chunks", "pool")).table()
    create_table_artifact(found.to_pylist(), key="judge-estimate", description=run.store.url)
    reporter().table("What judging will take", found)


def finish(run: Run, settings: Settings) -> None:
    """Write what lies beside the tables: the funnel, the views for DuckDB, the dataset card and the report."""
    write_funnel(run)
    run.store.write("views.sql", views_sql(run).encode())
    text = card(run, settings, caveats(all_tables(run), settings))
    run.store.write("README.md", text.encode())
    create_markdown_artifact(text, key="dataset-card", description=run.store.url)
    publish_report(run, settings)


def write_funnel(run: Run) -> None:
    """Gather what the complete stages counted."""
    steps_so_far = {name: [asdict(step) for step in found.funnel] for name, found in run.manifests().items()}
    steps_so_far.pop(FUNNEL_STAGE.name, None)
    run_step(
        run,
        Step(
            FUNNEL_STAGE, {}, lambda _, output: funnel(run, output), lambda: {"the other stages": key_of(steps_so_far)}
        ),
    )


def record(run: Run, docs: str, queries: str, settings: Settings) -> None:
    """Note what the run is made from: `darklode status` and `darklode audit` read it.

    Raises:
        ArtifactError: the folder holds triplets mined from a log.
    """
    if "logs" in json.loads(run.store.read("inputs.json") or b"{}"):
        raise ArtifactError(f"{run.store.url} holds triplets made by `darklode mine`; choose another --out")
    chosen = yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    run.store.write("settings.yaml", chosen.encode())
    run.store.write("inputs.json", json.dumps({"docs": docs, "queries": queries}, indent=1).encode())


def recorded(run: Run) -> tuple[str, str, Settings]:
    """Documents, queries and settings of a run.

    Raises:
        ArtifactError: the folder holds no run.
    """
    inputs, settings = run.store.read("inputs.json"), run.store.read("settings.yaml")
    if inputs is None or settings is None:
        raise no_run(run)
    paths = json.loads(inputs)
    if "queries" not in paths:
        raise ArtifactError(f"{run.store.url} holds triplets made by `darklode mine`, and no benchmark")
    return paths["docs"], paths["queries"], resolve(yaml.safe_load(settings))


def _embed_and_search(
    tables: Tables, output: Output, settings: Settings, retrievers: Mapping[str, Factory], spread: Spread
) -> None:
    """Fill the embedding cache first, whose shards are not those of the search."""
    encoders = {name: settings.encoders[name] for name in retrievers if name in settings.encoders}
    embed_all(tables, output, encoders, settings.cache, spread=spread)
    search(tables, output, settings.pool, retrievers=retrievers, spread=spread)


def _judging(settings: Settings) -> list[Step]:
    """Calibration and judging: a fitted threshold is the one thing that the latter takes from the former."""
    given, identity = settings.judge, tools.judge_identity(settings.judge)
    tenant, seed, human = settings.ingest.tenant, settings.seed, settings.judge.human
    fitted, adaptive = given.threshold == "fitted", given.depth == "adaptive"
    stage = ADAPTIVE_JUDGE if adaptive else JUDGE

    def compare(tables: Tables, output: Output) -> None:
        calibrate(tables, output, given, judge_for=tools.judge_for(settings), tenant=tenant, seed=seed)

    def ask(tables: Tables, output: Output) -> None:
        thresholds = fitted_thresholds(tables) if fitted else None
        judge(tables, output, given, judge_for=tools.judge_for(settings, thresholds), seed=seed)

    return [
        Step(
            CALIBRATE,
            identity | {"seed": seed, "tenant": tenant} if human else {},
            compare,
            lambda: {"the human labels": source_fingerprint(human)} if human else {},
        ),
        Step(
            replace(stage, reads=(*stage.reads, "calibration")) if fitted else stage,
            identity | ({"seed": seed} if adaptive else {}),
            ask,
        ),
    ]


def audit_step(settings: Settings) -> Step:
    """The audit, which the flow audit-retrievers runs alone."""
    depth, seed = settings.pool.depth, settings.seed
    return Step(
        AUDIT,
        plain(settings.audit) | {"depth": depth, "seed": seed},
        lambda tables, output: audit(tables, output, settings.audit, depth=depth, seed=seed),
    )


def plain(section: Section, leave: str = "") -> dict[str, Any]:
    """A section as plain values, for the fingerprint; `leave` names a key that the stage does not read."""
    return section.model_dump(mode="json", exclude={leave})
