"""The grid of laws on a Ray cluster of two machines: the points of one machine, byte for byte."""

from pathlib import Path

import pytest

from darklode.flows.run_laws import run_laws
from darklode.pipeline.base.artifacts import Run
from helpers.adapted import build_to_adapt, model_in
from helpers.commands import DARKLODE, Environment, built, run_command
from helpers.ray_cluster import cluster
from helpers.runs import read

pytestmark = [pytest.mark.server, pytest.mark.slow]

ADAPT = {"method": "linear", "steps": 5, "learning_rates": [1e-3], "start": "base", "batch": 8}


def test_a_cluster_makes_the_same_points(served: Environment, tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    source, encoder, out = build_to_adapt(tmp_path / "run"), model_in(tmp_path).model, tmp_path / "laws"
    here = Run(str(tmp_path / "here"))
    grid = {"adapt": ADAPT, "laws": {"sizes": [10, 20], "sources": ["labels", "shuffled"], "seeds": 2}}
    run_laws([source.store.url], [encoder], here.store.url, grid)
    with cluster(dict(served)) as machines:
        told = {f"adapt.{name}": value for name, value in ADAPT.items()} | {"runner.kind": "ray"}
        told |= {"runner.address": machines.client}
        words = [word for name, value in told.items() for word in ("--set", f"{name}={value}")]
        options = "--size 10 --size 20 --source labels --source shuffled --seeds 2".split()
        command = [DARKLODE, "laws", "run", source.store.url, "--encoder", encoder, "--out", str(out), *options, *words]
        built(command, machines.environment, run_command)
    found = Run(str(out))
    assert len(read(found, "law_points")) == 2 * 2 * 2 * 3
    for name in ("law_points", "law_verdicts", "law_predictions"):
        assert found.tables(name).content(name) == here.tables(name).content(name)
    assert not [file for file in (out / "progress").rglob("*") if file.is_file()]
