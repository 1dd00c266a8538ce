"""What one takes home: it loads without Darklode, fits its teacher's index, and is refused where it does not."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from darklode.flows import open_systems
from darklode.flows.runs import write_run
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.models.loading import load_model
from darklode.pipeline.serve.registry import AdapterRegistry
from darklode.pipeline.towers.folder import SHIPPED_STUDENT, save, sentence
from darklode.pipeline.towers.stage import load_best_student
from darklode.pipeline.train.data.dataset import QuerySet
from darklode.pipeline.train.fit.determinism import deterministic
from darklode.pipeline.train.release.adapter import ENCODER_FOLDER, Adapter, weights_hash
from darklode.pipeline.train.release.folder import assemble_model
from darklode.schemas.run_inputs import BenchmarkInputs
from darklode.schemas.settings import Settings
from helpers.adapted import TENANT, model_in, refused

from .conftest import Distilled, copy_index

ALONE = """
import sys
import numpy as np
from sentence_transformers import SentenceTransformer
vectors = SentenceTransformer(sys.argv[1], device="cpu").encode(["how badu", "how befi"], show_progress_bar=False)
assert not any(name.partition(".")[0] == "darklode" for name in sys.modules)
np.save(sys.argv[2], vectors)
"""


@pytest.mark.slow
def test_a_fresh_process_without_darklode_gets_the_students_vectors(distilled: Distilled, tmp_path: Path) -> None:
    folder, to = Path(distilled.out.store.url) / ENCODER_FOLDER, tmp_path / "found.npy"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(folder), str(to)], env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    with deterministic(0):
        student = load_best_student(distilled.out.tables(), distilled.pair)
        wanted = student.vectors(QuerySet.from_texts(["how badu", "how befi"], distilled.pair))
    np.testing.assert_allclose(np.load(to), wanted, atol=1e-5)
    assert json.loads((folder / "config.json").read_text())["num_hidden_layers"] == 1


@pytest.mark.slow
def test_a_folder_that_stands_is_not_written_again(distilled: Distilled) -> None:
    folder = Path(distilled.out.store.url) / ENCODER_FOLDER
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    save(distilled.out, distilled.pair)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.fixture
def ready(distilled: Distilled, tmp_path: Path) -> tuple[Path, Path]:
    """Copies of the student and of its index, which has the teacher among its encoders."""
    student = Path(shutil.copytree(distilled.out.store.url, tmp_path / "student"))
    return student, copy_index(student, distilled, tmp_path / "run")


def test_it_fits_its_teachers_index_and_is_released(ready: tuple[Path, Path], tmp_path: Path) -> None:
    student, index = ready
    assert refused(student, index) == ""
    adapter = Adapter.open(str(student))
    assert (adapter.facts["shipped"], adapter.ships, adapter.tenant) == (SHIPPED_STUDENT, True, TENANT)
    kept = AdapterRegistry(str(tmp_path / "registry"))
    with open_systems.open_adapter_check(str(student), str(index)) as check:
        kept.release(check, None)
    assert [row["state"] for row in kept.rows()] == ["released"]


def test_a_student_that_was_changed_or_put_aside_is_refused(ready: tuple[Path, Path], distilled: Distilled) -> None:
    student, index = ready
    config = student / ENCODER_FOLDER / "config.json"
    config.write_text(config.read_text() + " ")
    assert "files of the adapter" in refused(student, index)
    shutil.rmtree(student / ENCODER_FOLDER)
    base = assemble_model(load_model(distilled.pair.teacher, "cpu"), distilled.pair.teacher, [])
    base.save_pretrained(str(student / ENCODER_FOLDER), create_model_card=False)
    facts = json.loads((student / "adapter.json").read_text())
    facts["weights"] = weights_hash(Run(str(student)).store)
    (student / "adapter.json").write_text(json.dumps(facts))
    assert "is applied" in refused(student, index)


def test_another_models_index_is_refused(ready: tuple[Path, Path], distilled: Distilled) -> None:
    student, index = ready
    other = model_in(distilled.root).model_copy(update={"query_prompt": "another "}).model_dump(mode="json")
    settings = Settings(cache=distilled.settings.cache, encoders={"tiny": other})
    write_run(Run(str(index)), BenchmarkInputs(docs="docs", queries="queries"), settings)
    assert "query prompt of the base" in refused(student, index)


def test_what_is_said_of_it_names_what_it_keeps(distilled: Distilled) -> None:
    said = sentence(distilled.out.tables())
    assert said.startswith("it retains ")
    assert "of R@100" in said
    assert Adapter.open(distilled.out.store.url).facts["reason"] == said
