"""A search engine and a run file from the settings to the audit, the evaluation and the search command."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from darklode.flows import open_systems
from darklode.flows.config import load_settings
from darklode.flows.factories import retrievers
from darklode.flows.jobs.evaluate_systems import steps as evaluation_steps
from darklode.flows.preflight import build_checks, run_checks
from darklode.flows.runs import write_run
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.base.types import Rows
from darklode.pipeline.report.funnel import FUNNEL_STAGE, funnel
from darklode.schemas.run_inputs import BenchmarkInputs
from darklode.schemas.settings import Settings
from helpers.commands import build_without_prefect
from helpers.fake_engine import FakeEngine
from helpers.runs import REPOSITORY
from helpers.subjects import SUBJECTS, write_subjects

ENGINE = """
retrievers:
  shop:
    kind: opensearch
    base_url: {url}
    index: {index}
    request:
      query: {{match: {{body: "{{query}}"}}}}
      size: "{{k}}"
  file: {{kind: run_file, path: shop.run}}
"""


@dataclass(frozen=True)
class Shop:
    """An engine with the documents of a source, and a folder with both."""

    folder: Path
    engine: FakeEngine

    def settings(self, *assignments: str, index: str = "docs") -> Settings:
        config = self.folder / f"{index}.yaml"
        config.write_text(ENGINE.format(url=self.engine.url, index=index))
        given = ["clean.keep_all=true", "pool.retrievers=[bm25, shop, file]", "pool.depth=3", "pool.search_depth=5"]
        given += [f"cache.root={self.folder}/cache", "evaluate.n_resamples=20", "evaluate.permutations=100"]
        return load_settings("embedded", config, [*given, *assignments])

    @property
    def inputs(self) -> tuple[Path, Path]:
        return self.folder / "docs", self.folder / "queries.txt"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = write_subjects(tmp_path_factory.mktemp("shop"))
    documents = {f"{subject}.md": (folder / "docs" / f"{subject}.md").read_text() for subject in SUBJECTS}
    (folder / "shop.run").write_text("nobody Q0 invoice.md 1 1 shop\n")
    with FakeEngine({"docs": documents | {"old.md": "how do I rotate the past"}}) as engine:
        yield Shop(folder, engine)


@pytest.fixture(scope="module")
def built(shop: Shop) -> Run:
    """A build whose run file ranks, for each query, the document of its subject."""
    settings = shop.settings("pool.retrievers=[bm25]")
    out = shop.folder / "run"
    build_without_prefect(out, *shop.inputs, settings)
    queries = all_tables(Run(str(out))).sql("SELECT query_id, text FROM queries ORDER BY query_id").to_pylist()
    lines = [f"{row['query_id']} Q0 {row['text'].split()[-1]}.md 1 1.5 shop\n" for row in queries]
    (shop.folder / "shop.run").write_text("".join(lines))
    write_run(Run(str(out)), BenchmarkInputs(docs=str(shop.inputs[0]), queries=str(shop.inputs[1])), shop.settings())
    build_without_prefect(out, *shop.inputs, shop.settings())
    return Run(str(out))


def rows(run: Run, sql: str) -> Rows:
    found: Rows = all_tables(run).sql(sql).to_pylist()
    return found


def test_they_are_in_the_pool_and_the_audit(built: Run) -> None:
    pooled = rows(built, "SELECT unnest(retrievers) AS name, count(*) AS n FROM pool GROUP BY name ORDER BY name")
    assert pooled == [
        {"name": "bm25", "n": 3 * len(SUBJECTS)},
        {"name": "file", "n": len(SUBJECTS)},
        {"name": "shop", "n": 3 * len(SUBJECTS)},
    ]
    audited = rows(built, "SELECT retriever FROM audit_retrievers WHERE tenant IS NULL ORDER BY retriever")
    assert [row["retriever"] for row in audited] == ["bm25", "file", "shop"]
    (reject,) = rows(built, "SELECT DISTINCT id, reason FROM rejects WHERE stage = 'search'")
    assert reject == {"id": "old.md", "reason": "hit that is no chunk or document of the tenant"}


def test_a_finished_build_asks_nothing_and_a_changed_file_is_read_again(shop: Shop, built: Run) -> None:
    n_searches = len(shop.engine.searches)
    assert build_without_prefect(built.store.url, *shop.inputs, shop.settings()) == []
    assert len(shop.engine.searches) == n_searches


def test_they_are_evaluated_and_searched_by_name(shop: Shop, built: Run) -> None:
    settings = shop.settings("evaluate.systems=[shop, file, bm25]")
    for step in evaluation_steps(settings):
        if step.enabled:
            built.execute(step.plan(built), step.execute)
    systems = rows(built, "SELECT DISTINCT system FROM evaluation ORDER BY system")
    assert [row["system"] for row in systems] == ["bm25", "file", "shop"]
    with open_systems.open_index(built.store.url, None, []) as (index, record):
        chosen = open_systems.systems(
            record.settings, mined=False, encoders=[], retrievers=["shop", "file"], adapters={}
        )
        hits = index.top(chosen, ["how do I rotate the token"], 2).to_pylist()
    assert [(row["system"], row["text_id"].partition("#")[0]) for row in hits] == [
        ("shop", "token.md"),
        ("file", "token.md"),
    ]


def test_the_guides_examples_are_settings(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "guides" / "retrievers.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    kinds = []
    for number, example in enumerate(examples):
        (tmp_path / f"{number}.yaml").write_text(example)
        settings = load_settings(config=tmp_path / f"{number}.yaml")
        named = {*settings.retrievers, *settings.encoders}
        assert named < set(retrievers(settings)) <= named | {"bm25", "lsa_feedback", "ppmi"}
        kinds.append([kind.kind for kind in settings.retrievers.values()])
    assert kinds == [["opensearch"], ["sql"], ["hybrid", "sparse", "multi_vector", "rerank"]]


def test_an_engine_is_tried_before_a_build(shop: Shop, built: Run) -> None:
    out = str(shop.folder / "new")

    def check(settings: Settings, out: str = out) -> tuple[list[str], list[str]]:
        results = run_checks(build_checks(*map(str, shop.inputs), out, settings))
        return [str(error) for error in results.errors], list(results.notes)

    assert check(shop.settings()) == ([], [])
    ((error,), _) = check(shop.settings(index="none"))
    assert "no such index [none]" in error
    assert check(shop.settings(index="none-{{tenant}}")) == ([], []), "the tenants are not known yet"
    gone = shop.settings("retrievers.shop.base_url=http://127.0.0.1:9")
    ((error,), _) = check(gone)
    assert error == "shop: no server at 127.0.0.1:9; start it, or correct base_url"
    built.execute(built.plan(FUNNEL_STAGE, {}), lambda _tables, output: funnel(built, output, ()))
    errors, notes = check(shop.settings(index="gone"), built.store.url)
    assert errors == []
    assert [note.partition("Server message: ")[2] for note in notes] == [
        "no such index [gone]; not needed if every stage is up to date"
    ]
