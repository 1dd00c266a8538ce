"""A static student: its initialization, its training, and its folder, which loads without Darklode."""

from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from darklode.flows import open_systems
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.base.models.loading import load_model
from darklode.pipeline.serve.registry import AdapterRegistry
from darklode.pipeline.towers.distillation import distances
from darklode.pipeline.towers.teacher_student import TeacherPair
from darklode.pipeline.train.data.dataset import QuerySet
from darklode.pipeline.train.fit.determinism import deterministic
from darklode.pipeline.train.release.adapter import ENCODER_FOLDER, Adapter
from darklode.pipeline.train.release.onnx_export import export
from helpers.adapted import refused
from helpers.runs import read

from .conftest import Distilled, copy_index, distil_into

TEXTS = [f"how {one}{other}" for one in "bdfklmnpr" for other in ("adu", "efi", "ama", "opa")]


@pytest.fixture(scope="module")
def pair(distilled: Distilled) -> TeacherPair:
    return TeacherPair(distilled.pair.teacher, distilled.pair.cache, None, 1, is_static=True)


def test_a_static_student_encodes_by_the_mean_of_its_tokens(pair: TeacherPair) -> None:
    with deterministic(0):
        student = pair.open()
        student.initialize(TEXTS, pair.queries(TEXTS))
    asked = QuerySet.from_texts(["how vadu", "vadu how", " "], pair)
    vectors = student.vectors(asked)
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)
    assert (vectors[2] == 0).all()
    table = student.loaded[0].embedding.weight.detach().numpy()
    ids = student.features(["how vadu"])["input_ids"].numpy()
    mean = table[ids].mean(axis=0)
    np.testing.assert_allclose(vectors[0], mean / np.linalg.norm(mean), atol=1e-5)


def test_it_begins_nearer_to_its_teacher_than_its_unmapped_table(pair: TeacherPair) -> None:
    asked = QuerySet.from_texts(["how vadu", "how vefi", "how vopa"], pair)
    with deterministic(0):
        student = pair.open()
        random_distance = distances(asked.vectors, student.vectors(asked)).mean()
        student.initialize(TEXTS, pair.queries(TEXTS))
    assert distances(asked.vectors, student.vectors(asked)).mean() < 0.8 * random_distance


def test_a_prompt_and_a_maximum_length_are_the_teachers_alone(pair: TeacherPair) -> None:
    teacher = pair.teacher.model_copy(update={"query_prompt": "query: ", "max_seq_length": 16})
    student = TeacherPair(teacher, pair.cache, None, 1, is_static=True).student
    assert (student.query_prompt, student.max_seq_length) == ("", None)


@pytest.mark.slow
def test_it_is_trained_saved_and_fits_its_index(distilled: Distilled, pair: TeacherPair, tmp_path: Path) -> None:
    out = Run(str(tmp_path / "static"))
    distil_into(out, distilled, pair)
    log = read(out, "distillation_log")
    assert log[-1]["distance"] < log[0]["distance"]
    folder = tmp_path / "static" / ENCODER_FOLDER
    vectors = SentenceTransformer(str(folder), device="cpu").encode(["how badu"])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    limited = distilled.pair.teacher.model_copy(update={"model": str(folder), "max_seq_length": 8})
    np.testing.assert_allclose(load_model(limited, "cpu").encode(["how badu"]), vectors, atol=1e-6)
    index = copy_index(tmp_path / "static", distilled, tmp_path / "run")
    assert refused(tmp_path / "static", index) == ""
    registry = AdapterRegistry(str(tmp_path / "registry"))
    with open_systems.open_adapter_check(str(tmp_path / "static"), str(index)) as check:
        registry.release(check, None)
    assert [row["state"] for row in registry.rows()] == ["released"]
    with pytest.raises(DarklodeError, match="is a static student"):
        export(Adapter.open(str(tmp_path / "static")))
    page = (tmp_path / "static" / "README.md").read_text()
    assert "Student: static" in page
