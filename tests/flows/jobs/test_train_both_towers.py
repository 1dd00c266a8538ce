"""train-towers --stage 1 on a whole run: what it leaves, that it stands, and what is refused."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from darklode.flows import factories, open_systems
from darklode.flows.jobs.train_towers import train_towers
from darklode.flows.open_index import open_service
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.chunk_texts import view
from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.serve.service import SearchRequest
from darklode.schemas.settings import Settings
from helpers.adapted import model_in, settings_for
from helpers.dual import build_with_documents
from helpers.environment import with_paths
from helpers.tiny_bert import tiny_bert

QUICK = {
    "dual": {
        "query_tower_layers": 1,
        "matryoshka_dims": [4, 8],
        "max_steps": 4,
        "batch_size": 8,
        "learning_rates": [1e-3],
    }
}


@pytest.mark.slow
def test_both_towers_then_they_stand_and_the_query_tower_is_distilled(tmp_path: Path) -> None:
    build_with_documents(tmp_path / "run")
    tiny_bert(tmp_path / "model", num_hidden_layers=2)
    tiny = {"encoders": {"tiny": model_in(tmp_path).model_dump(mode="json")}}
    model, run, out = "tiny", [str(tmp_path / "run")], tmp_path / "out"
    said = train_towers(run, model, str(out), QUICK | tiny, stage=1)
    assert "nDCG@10" in said
    files = [path for part in ("tables", "towers") for path in (out / part).rglob("*") if path.is_file()]
    before = {path: path.read_bytes() for path in files}
    assert train_towers(run, model, str(out), QUICK | tiny, stage=1) == said
    assert {path: path.read_bytes() for path in files} == before
    assert Run(str(out)).tables("tower_triplets").rows("tower_triplets") == 39
    layers = [json.loads(one.read_text()).get("num_hidden_layers") for one in (out / "towers").rglob("config.json")]
    assert sorted(filter(None, layers)) == [1, 2], "the query tower is the smaller one"
    searched_by(str(out), run[0])
    quick = {"distill": {"student_layers": 1, "max_steps": 4, "batch_size": 8}}
    assert "it retains " in train_towers(run, str(out / "towers"), str(tmp_path / "student"), quick)
    assert not (tmp_path / "student" / "query_encoder" / "router_config.json").exists()


def searched_by(out: str, run: str) -> None:
    """The folder is an encoder for `search` and `serve`: with its own prompts, on vectors of its own."""
    encoder = factories.encoder(out, Settings())
    assert isinstance(encoder, SentenceTransformersSettings)
    assert (encoder.model, encoder.query_prompt) == (f"{out}/towers", "ask ")
    assert open_systems.open_adapters([out]) == {}
    text, plain = "what is it", SentenceTransformer(f"{out}/towers", device="cpu")
    with open_service(run, [out], None) as served:
        found = served.service.answers([SearchRequest(out, text, 10)])[0]
        chunks = Run(run).tables("chunks").read("chunks")
        scores = plain.encode_query([text]) @ plain.encode_document(view(chunks).to_pylist()).T
        assert [one["score"] for one in found] == pytest.approx(sorted(scores[0], reverse=True)[:10], abs=1e-3)


@pytest.mark.slow
def test_two_processes_of_the_command_are_one_run(tmp_path: Path) -> None:
    """One of them leads and writes; the second time nothing is due, and both find so."""
    build_with_documents(tmp_path / "run")
    model, chosen = (
        str(model_in(tmp_path).model),
        [f"--set=dual.{name}={value}" for name, value in QUICK["dual"].items()],
    )
    words = ["darklode", "train-towers", str(tmp_path / "run"), "--stage", "1", "--encoder", model, *chosen]
    launched = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    out, environment = tmp_path / "out", with_paths(ACCELERATE_USE_CPU="true")
    for _ in range(2):
        done = subprocess.run([*launched, *words, "--out", str(out)], env=environment, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()[-2000:]
        assert (done.stdout + done.stderr).decode().count("✓ dual_trials") == 1
    train_towers([str(tmp_path / "run")], model, str(tmp_path / "alone"), QUICK, stage=1)
    both, alone = (Run(str(one)).tables("dual_log").read("dual_log").to_pylist() for one in (out, tmp_path / "alone"))
    assert [row["step"] for row in both] == [row["step"] for row in alone]
    losses = [[row["contrastive"] for row in rows[1:]] for rows in (both, alone)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_stage_1_has_neither_teacher_nor_queries(tmp_path: Path) -> None:
    settings_for(tmp_path)
    with pytest.raises(SettingsError, match="stage 1 trains on triplets"):
        train_towers([str(tmp_path)], "m", str(tmp_path / "out"), teacher="t", stage=1)
