"""The grid of laws on a Ray cluster of two machines: the points of one machine, byte for byte, whatever is trained."""

from pathlib import Path
from typing import Any

import pytest

from darklode.flows.jobs.run_laws import run_laws
from darklode.pipeline.base.artifacts import Run
from helpers.adapted import model_in
from helpers.commands import DARKLODE, Environment, built, run_command
from helpers.dual import build_with_documents
from helpers.ray_cluster import cluster
from helpers.runs import read

pytestmark = [pytest.mark.server, pytest.mark.slow]

ADAPT = {"method": "linear", "max_steps": 5, "learning_rates": [1e-3], "init": "base", "batch_size": 8}


DUAL = {"max_steps": 3, "batch_size": 8, "matryoshka_dims": "[4,8]"}
LAWS = {"train_sizes": "[10,20]", "label_sources": "[labels,shuffled]", "n_seeds": 2}


def of(section: str, values: dict[str, Any]) -> dict[str, Any]:
    return {f"{section}.{name}": value for name, value in values.items()}


def test_a_cluster_makes_the_same_points(served: Environment, tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    source, encoder = build_with_documents(tmp_path / "run"), model_in(tmp_path).model
    for trainer in ("adapt", "towers"):
        laws = {"trainer": trainer, "train_sizes": [10, 20], "label_sources": ["labels", "shuffled"], "n_seeds": 2}
        grid = {"adapt": ADAPT, "dual": DUAL | {"matryoshka_dims": [4, 8]}, "laws": laws}
        run_laws([source.store.url], [encoder], str(tmp_path / f"{trainer} here"), grid)
    with cluster(dict(served)) as machines:
        told = of("adapt", ADAPT) | of("dual", DUAL) | of("laws", LAWS)
        told |= {"runner.kind": "ray", "runner.address": machines.client}
        words = [word for name, value in told.items() for word in ("--set", f"{name}={value}")]
        for trainer in ("adapt", "towers"):
            out, trained = str(tmp_path / trainer), ["--set", f"laws.trainer={trainer}"]
            command = [DARKLODE, "laws", "run", source.store.url, "--encoder", encoder, "--out", out, *words, *trained]
            built(command, machines.environment, run_command)
    for trainer in ("adapt", "towers"):
        found, here = Run(str(tmp_path / trainer)), Run(str(tmp_path / f"{trainer} here"))
        assert len(read(found, "law_points")) == 2 * 2 * 2 * 3
        for name in ("law_points", "law_verdicts", "law_predictions"):
            assert found.tables(name).content(name) == here.tables(name).content(name)
        assert not [file for file in (tmp_path / trainer / "progress").rglob("*") if file.is_file()]
