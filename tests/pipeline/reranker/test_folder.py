"""The released folder: plain sentence-transformers loads it, and it names its tenant."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from darklode.pipeline.base.errors import DoesNotFit
from darklode.pipeline.base.models.local import locate, require_tenant, reranker_record
from darklode.pipeline.reranker.folder import probe_lists, save_reranker
from darklode.pipeline.reranker.stage import load_best_reranker
from darklode.schemas.pooling import LocalModel
from helpers.adapted import TENANT
from helpers.reranked import RerankedRun

PLAIN = """
import json, sys
sys.modules["darklode"] = None
from sentence_transformers import CrossEncoder
from torch.nn import Identity
pairs = json.loads(sys.argv[2])
print(json.dumps(CrossEncoder(sys.argv[1], device="cpu").predict(pairs, activation_fn=Identity()).tolist()))
"""


def test_plain_sentence_transformers_gives_the_scores_of_training(reranked: RerankedRun) -> None:
    lists = probe_lists(reranked.out.tables(), reranked.finder)
    expected = load_best_reranker(reranked.out.tables(), reranked.initial).scores(*lists.pairs())
    pairs = json.dumps(list(zip(*lists.pairs(), strict=True)))
    command = [sys.executable, "-c", PLAIN, str(reranked.root / "out" / "reranker"), pairs]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    np.testing.assert_allclose(json.loads(done.stdout.decode().splitlines()[-1]), expected, atol=1e-5)


def test_the_record_names_fingerprint_tenant_and_weight_wherever_it_lies(reranked: RerankedRun) -> None:
    facts = reranked.out.store.read_object("reranker.json")
    assert (facts["tenant"], facts["shipped"]) == (TENANT, "reranker")
    assert facts["weights"]
    assert facts["id"]
    for folder in (reranked.root / "out", reranked.root / "out" / "reranker"):
        model = LocalModel(model=str(folder))
        found = locate(model)
        assert found is not None
        assert found.folder == reranked.root / "out" / "reranker"
        assert reranker_record(model) == facts
        require_tenant(model, TENANT)
        with pytest.raises(DoesNotFit, match=f"was trained for tenant {TENANT}, not for other"):
            require_tenant(model, "other")
    require_tenant(LocalModel(model=str(reranked.root / "bi")), "other")


def test_an_up_to_date_folder_is_not_written_again(reranked: RerankedRun) -> None:
    def contents() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in (reranked.root / "out" / "reranker").rglob("*")}

    before = contents()
    save_reranker(reranked.out, reranked.finder, reranked.initial)
    assert contents() == before
