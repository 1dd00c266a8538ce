"""Builds with a language-model judge behind a real socket: killed and continued, and with a key that nobody sees."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pyarrow.csv as pa_csv
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.judge.ledger import Ledger
from darklode.pipeline.judge.stage import JUDGE
from helpers.commands import DARKLODE, Environment, build_command, built, run_inside, tables_of, wait_for
from helpers.fake_chat import FakeChat, at_random

pytestmark = pytest.mark.server

KEY = "sk-never-to-be-seen-123"
IN_FLIGHT = 32
PROBES = 2
"""Calls that find out which form of answer a server obeys."""


@pytest.fixture(scope="module")
def keyed(served: Environment) -> Environment:
    return dict(served) | {"JUDGE_KEY": KEY}


def judged(out: Path, server: FakeChat, cache: Path, *more: str) -> list[str]:
    chosen = {
        "judge.kind": "llm",
        "judge.model": server.model,
        "judge.base_url": server.url,
        "judge.api_key_env": "JUDGE_KEY",
        "judge.max_concurrency": IN_FLIGHT,
        "judge.timeout": 2,
        "judge.probe_pairs": 0,
        "pool.retrievers": "[bm25, ppmi]",
        "pool.depth": 4,
        "cache.root": cache,
    }
    return build_command(out, *(word for key, value in chosen.items() for word in ("--set", f"{key}={value}")), *more)


@pytest.fixture(scope="module")
def undisturbed(keyed: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    with FakeChat(key=KEY) as server:
        built(judged(folder / "run", server, folder / "cache"), keyed)
        assert max(server.served.values()) == 1
    return folder


def assert_same(ours: Path, theirs: Path) -> None:
    """The same tables; what a verdict took, which depends on the server's cache and its failures, aside."""
    left, right = (
        {name: data for name, data in tables_of(folder).items() if not name.startswith("verdicts/")}
        for folder in (ours, theirs)
    )
    assert left == right
    took = "prompt_tokens, completion_tokens, cached_tokens, attempts"
    question = f"SELECT * EXCLUDE ({took}) FROM verdicts ORDER BY tenant, query_id, chunk_id"
    verdicts = [Run(str(folder)).tables("verdicts").sql(question) for folder in (ours, theirs)]
    assert verdicts[0].equals(verdicts[1])
    assert verdicts[0].num_rows > 1000


@pytest.mark.slow
def test_killed_twice_it_goes_on_and_asks_nothing_twice(undisturbed: Path, keyed: Environment, tmp_path: Path) -> None:
    with FakeChat(key=KEY, latency=0.05, slots=IN_FLIGHT, script=at_random(1, 0.1), hang_seconds=3) as server:
        command = judged(tmp_path / "run", server, tmp_path / "cache")
        for kill in (1, 2):
            with (tmp_path / "log").open("wb") as log:
                process = subprocess.Popen(command, env=dict(keyed), stdout=log, stderr=log)
            seen = len(server.served)
            try:
                wait_for(lambda seen=seen: len(server.served) > seen + 300, f"calls before kill {kill}")  # type: ignore[misc]
            finally:
                process.send_signal(signal.SIGKILL)
                process.wait()
            assert not (tmp_path / "run" / "manifests" / "judge.json").exists()
        built(command, keyed)
        again = sum(server.served.values()) - len(server.served)
        # Calls under way, and replies of half a second that waited for their part of the ledger.
        assert again <= 2 * (IN_FLIGHT + IN_FLIGHT / 0.05)
    assert_same(tmp_path / "run", undisturbed / "run")


@pytest.mark.slow
@pytest.mark.parametrize("answered", [0, 300])
def test_a_build_that_waits_for_a_dead_judge_ends_on_sigterm(answered: int, keyed: Environment, tmp_path: Path) -> None:
    log, wanted = tmp_path / "log", max(0, answered - PROBES)
    with FakeChat(key=KEY, script=lambda request: "dropped" if request.number > answered else None) as server:
        with log.open("wb") as output:
            process = subprocess.Popen(
                judged(tmp_path / "run", server, tmp_path / "cache"), env=dict(keyed), stdout=output, stderr=output
            )
        try:
            wait_for(lambda: process.poll() is not None or b"no calls for" in log.read_bytes(), "the judge to wait")
            wait_for(lambda: process.poll() is not None or kept(tmp_path) == wanted, "the last verdicts to be kept")
            process.terminate()
            assert process.wait(60) == -signal.SIGTERM, log.read_text()  # it would give up after 600 s
        finally:
            process.kill()
            process.wait()
        assert kept(tmp_path) == wanted


def kept(folder: Path) -> int:
    """Verdicts in the ledger of a build."""
    return sum(Ledger(str(folder / "cache")).usage()["verdicts"].to_pylist())


@pytest.mark.slow
def test_another_run_takes_its_verdicts_from_the_ledger(undisturbed: Path, keyed: Environment, tmp_path: Path) -> None:
    with FakeChat(key=KEY) as server:
        built(judged(tmp_path / "run", server, undisturbed / "cache"), keyed)
        assert server.requests == 0
    assert tables_of(tmp_path / "run") == tables_of(undisturbed / "run")


@pytest.mark.slow
def test_with_every_verdict_in_the_ledger_neither_server_nor_key_is_needed(
    undisturbed: Path, keyed: Environment, tmp_path: Path
) -> None:
    with FakeChat() as server:
        pass
    keyless = {name: value for name, value in keyed.items() if name != "JUDGE_KEY"}
    command = judged(tmp_path / "run", server, undisturbed / "cache", "--set", "judge.retry_timeout=5")
    built(command, keyless)
    assert tables_of(tmp_path / "run") == tables_of(undisturbed / "run")

    built([*command, "--set", "judge.threshold=0.9", "--set", "judge.response_format=choice"], keyless)
    (wrong,) = (
        Run(str(tmp_path / "run"))
        .tables("verdicts")
        .sql("SELECT count(*) AS wrong FROM verdicts WHERE relevant <> (probability >= 0.9::FLOAT)")["wrong"]
    )
    assert wrong.as_py() == 0
    manifest = Run(str(tmp_path / "run")).manifest(JUDGE)
    assert manifest is not None
    assert (manifest.facts["asked"], manifest.facts["hits"] > 1000) == (0, True)

    unknown = run_inside([*command, "--set", "judge.model=another"], keyless)
    assert "set the environment variable JUDGE_KEY" in unknown.err


@pytest.mark.slow
def test_an_estimate_asks_fifty_pairs_and_keeps_them(undisturbed: Path, keyed: Environment, tmp_path: Path) -> None:
    pairs = Run(str(undisturbed / "run")).tables("pool").rows("pool")
    with FakeChat(key=KEY) as server:
        prices = ["--set", "judge.prompt_price_per_million=2", "--set", "judge.completion_price_per_million=4"]
        command = judged(tmp_path / "run", server, tmp_path / "cache", *prices)
        shown = built([*command, "--estimate"], keyed)
        assert len(server.served) == 50 + PROBES
        assert re.search(rf"^pairs +{pairs:,} *$", shown, re.M)
        cost = float(re.search(r"^cost +([\d.]+) *$", shown, re.M)[1])  # type: ignore[index]
        assert not (tmp_path / "run" / "manifests" / "judge.json").exists()
        built(command, keyed)
        assert sum(times > 1 for times in server.served.values()) == PROBES, "the sample is not asked for again"
    took = (
        Run(str(tmp_path / "run"))
        .tables("verdicts")
        .sql("SELECT sum(2 * prompt_tokens + 4 * completion_tokens) / 1e6 AS cost FROM verdicts")
    )
    assert cost == pytest.approx(took["cost"][0].as_py(), rel=0.2)


@pytest.mark.slow
def test_an_estimate_asks_nothing_about_given_judgments(undisturbed: Path, keyed: Environment, tmp_path: Path) -> None:
    """They are compared with the judge in the build itself, which is paid for."""
    pairs = Run(str(undisturbed / "run")).tables("pool", "chunks")
    rows = pairs.sql(
        "SELECT DISTINCT tenant, query_id, doc_id, 1 AS relevance FROM pool JOIN chunks USING (tenant, chunk_id)"
    )
    judgments = tmp_path / "judgments.csv"
    pa_csv.write_csv(rows.slice(0, 200), judgments)
    with FakeChat(key=KEY) as server:
        command = judged(tmp_path / "run", server, tmp_path / "cache", "--qrels", str(judgments))
        built([*command, "--estimate"], keyed)
        assert len(server.served) == 50 + PROBES


@pytest.mark.slow
def test_an_estimate_knows_adaptive_depth_and_panels(undisturbed: Path, keyed: Environment, tmp_path: Path) -> None:
    pairs = Run(str(undisturbed / "run")).tables("pool").rows("pool")
    with FakeChat(key=KEY) as first, FakeChat(key=KEY, model="second") as second:
        member = f"{{kind: llm, model: second, base_url: '{second.url}', api_key_env: JUDGE_KEY}}"
        panel = ["--set", f"judge.panel=[{member}, {{kind: embedded}}]", "--set", "judge.strategy=adaptive"]
        shown = built([*judged(tmp_path / "run", first, tmp_path / "cache", *panel), "--estimate"], keyed)
        assert [len(server.served) - PROBES for server in (first, second)] == [50, 50]
    titles = re.findall(r"^Estimated judging: (.*)$", shown, re.M)
    assert titles == ["judge 1 of the panel, fake", "judge 2 of the panel, second"]
    for least, most in re.findall(r"^to ask +([\d,]+) +([\d,]+) *$", shown, re.M):
        assert 0.1 * pairs < int(least.replace(",", "")) <= int(most.replace(",", "")) <= pairs
    assert len(re.findall(r"^to ask ", shown, re.M)) == 2


@pytest.mark.slow
def test_the_key_is_nowhere(undisturbed: Path, keyed: Environment, tmp_path: Path) -> None:
    with FakeChat(key="sk-another") as server:
        outcome = run_inside(judged(tmp_path / "run", server, tmp_path / "cache"), keyed)
    assert outcome.code == 1
    assert "rejected the key in JUDGE_KEY" in outcome.err
    assert KEY not in outcome.out + outcome.err
    stats = run_inside([DARKLODE, "judge", "stats", str(undisturbed / "run")], keyed)
    assert KEY not in stats.out + stats.err
    folders = [undisturbed, tmp_path, Path(keyed["PREFECT_HOME"]).parent, Path(os.environ["PREFECT_HOME"])]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert any(path.suffix == ".db" for path in files), "Prefect's records are among them"
    assert not [path for path in files if KEY.encode() in path.read_bytes()]
