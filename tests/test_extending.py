"""A package outside the tree adds a retriever, a judge, a term weighter and an export format, each in one file."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.commands import Environment
from helpers.runs import REPOSITORY

EXAMPLE = REPOSITORY / "tests" / "plugin_example"
PIP = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")

CHECK = """
import json, sys
from darklode.flows import factories
from darklode.flows.config import load_settings
from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.kinds import as_kind
from darklode.pipeline.judge.factory import judge_identity
from darklode.pipeline.mine.term_weighting.kinds import TermWeighterKind
import pyarrow as pa

chosen = load_settings(assignments=sys.argv[1:])
learned = Tables.empty("learned_term_weights")
weighter = as_kind(chosen.term_weighting, TermWeighterKind).term_weighter(learned, chosen.cache)
queries = pa.table({"tenant": ["t"], "query_id": ["q"], "text": ["rotate signing secret"]})
print(json.dumps({
    "retrievers": factories.identities(factories.retrievers(chosen)),
    "judge": judge_identity(chosen.judge),
    "terms": weighter.terms(queries).select(["term", "importance"]).to_pylist(),
}))
"""

CHOSEN = (
    "pool.retrievers=[bm25, shared_words, long]",
    "retrievers.long={kind: shared_words, shortest: 6}",
    "judge.kind=share_of_words",
    "judge.shortest=4",
    "judge.panel=[{kind: embedded}]",
    "term_weighting.kind=long_words",
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the example is installed, as `pip install` of a package does it."""
    source, target = tmp_path_factory.mktemp("source") / "example", tmp_path_factory.mktemp("site")
    shutil.copytree(EXAMPLE, source)
    subprocess.run([*PIP, "--target", str(target), str(source)], check=True, capture_output=True)
    path = os.pathsep.join([str(target), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path}


def run(words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_settings_name_kinds_of_a_package(installed: dict[str, str]) -> None:
    done = run(["-c", CHECK, *CHOSEN], installed)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found["retrievers"]) == ["bm25", "shared_words", "long"]
    assert found["retrievers"]["long"] == {"kind": "shared_words", "shortest": 6}
    assert found["judge"]["shortest"] == 4
    assert found["judge"]["panel"] == [{"kind": "embedded", "threshold": 0.33}]
    assert [term["importance"] for term in found["terms"]] == pytest.approx([0.75, 0.5, 0.75], abs=0.3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["judge.kind=share_of_word"], "did you mean share_of_words?"),
        (["judge.kind=share_of_words", "judge.shortst=3"], "did you mean judge.shortest?"),
        (
            ["judge.kind=share_of_words", "judge.model=m"],
            "of kind cross_encoder, fastembed_cross_encoder and llm",
        ),
        (["judge.shortest=3"], "judge.shortest is a setting of kind share_of_words; judge.kind is embedded"),
        (["pool.retrievers=[shared_word]"], "did you mean shared_words?"),
    ],
)
def test_what_is_wrong_is_said_as_of_any_kind(assignments: list[str], message: str, installed: dict[str, str]) -> None:
    done = run(["-c", CHECK, *assignments], installed)
    assert message in done.stderr


@pytest.mark.slow
@pytest.mark.server
def test_the_command_builds_and_exports_with_them(
    installed: dict[str, str], served: Environment, tmp_path: Path
) -> None:
    docs, queries = tmp_path / "docs.jsonl", tmp_path / "queries.jsonl"
    texts = ["rotate the signing secret of a webhook", "export invoices as a file", "reset a forgotten password"]
    docs.write_text("".join(json.dumps({"_id": f"d{n}", "text": text}) + "\n" for n, text in enumerate(texts)))
    asked = ["rotate signing secret", "export invoices", "forgotten password reset"]
    queries.write_text("".join(json.dumps({"_id": f"q{n}", "text": text}) + "\n" for n, text in enumerate(asked)))
    chosen = [word for one in (*CHOSEN, "clean.keep_all=true") for word in ("--set", one)]
    environment = dict(served) | {"PYTHONPATH": installed["PYTHONPATH"], "XDG_CACHE_HOME": str(tmp_path / "cache")}
    out = str(tmp_path / "run")
    command = ["-m", "darklode", "build", "--docs", str(docs), "--queries", str(queries), "--out", out, *chosen]
    built = run(command, environment)
    assert built.returncode == 0, built.stderr + built.stdout
    done = run(["-m", "darklode", "export", out, "--format", "pairs-csv", "--to", str(tmp_path / "csv")], environment)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "csv" / "pairs.csv").read_text().splitlines()
    assert lines[0] == "tenant,query_id,chunk_id"
    assert [line.split(",")[1] for line in lines[1:]] == ["q0", "q1", "q2"]
