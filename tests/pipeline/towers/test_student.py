"""What learns: which layers are kept, that all of it learns, and another model with its own tokens."""

from pathlib import Path

import numpy as np
import pytest
import torch

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.models.loading import load_model
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.towers.distillation import distances
from darklode.pipeline.towers.student import Student, evenly_spaced, first_and_last, keep_layers
from darklode.pipeline.towers.teacher_student import TeacherPair
from darklode.pipeline.train.data.dataset import QuerySet
from darklode.pipeline.train.fit.determinism import deterministic
from helpers.tiny_bert import tiny_bert

from .conftest import Distilled


def test_layers_are_chosen_evenly() -> None:
    assert [evenly_spaced(n, 6) for n in (1, 2, 3, 6)] == [[0], [0, 5], [0, 2, 5], [0, 1, 2, 3, 4, 5]]
    assert evenly_spaced(4, 12) == [0, 4, 7, 11]
    with pytest.raises(SettingsError, match=r"^layers 7: the model has only 6 layers"):
        evenly_spaced(7, 6)


def test_the_first_and_the_last_layers_are_chosen() -> None:
    assert [first_and_last(n, 6) for n in (1, 2, 3, 6)] == [[5], [0, 5], [0, 4, 5], [0, 1, 2, 3, 4, 5]]
    with pytest.raises(SettingsError, match=r"^layers 7: the model has only 6 layers"):
        first_and_last(7, 6)


def test_a_cut_model_has_the_kept_layers_and_all_else(distilled: Distilled) -> None:
    whole, part = (load_model(distilled.pair.teacher, "cpu") for _ in range(2))
    keep_layers(part[0].auto_model, 2)
    before, after = whole.state_dict(), part.state_dict()
    renamed = {name.replace("layer.3.", "layer.1."): one for name, one in before.items() if ".layer.1." not in name}
    wanted = {name: one for name, one in renamed.items() if ".layer.2." not in name}
    assert after.keys() == wanted.keys()
    assert all(torch.equal(after[name], one) for name, one in wanted.items())
    assert part[0].auto_model.config.num_hidden_layers == 2


def test_a_student_of_all_layers_is_its_teacher(distilled: Distilled) -> None:
    pair = TeacherPair(distilled.pair.teacher, distilled.pair.cache, None, 4)
    asked = QuerySet.from_texts(["how badu", " ", "how befi"], pair)
    texts = [f"{one}{other}" for one in "bdfklmnp" for other in ("adu", "efi", "ama", "opa")]
    with deterministic(0):
        student = pair.open()
        student.initialize(texts, pair.queries(texts))
        found = student.vectors(asked)
    np.testing.assert_allclose(found, asked.vectors, atol=5e-3)
    assert (found[1] == 0).all()


def test_a_student_begins_nearer_to_its_teacher_than_any_of_its_layers(distilled: Distilled) -> None:
    pair = TeacherPair(distilled.pair.teacher, distilled.pair.cache, None, 2)
    texts = [f"how {one}{other}" for one in "bdfklmnpr" for other in ("adu", "efi", "ama", "opa")]
    asked = QuerySet.from_texts(["how vadu", "how vefi", "how vopa"], pair)
    with deterministic(0):
        student = pair.open()
        student.initialize(texts, pair.queries(texts))
        student.loaded[-1].linear.weight.data, began = torch.eye(8), student.loaded[-1].linear.weight.data.clone()
        plain = distances(asked.vectors, student.vectors(asked)).mean()
        student.loaded[-1].linear.weight.data = began
    assert distances(asked.vectors, student.vectors(asked)).mean() < 0.9 * plain


def test_another_model_has_its_own_tokens_and_the_indexs_numbers(distilled: Distilled, tmp_path: Path) -> None:
    model = SentenceTransformersSettings(model=str(tiny_bert(tmp_path / "other", hidden_size=16)), device="cpu")
    pair = TeacherPair(distilled.pair.teacher, distilled.pair.cache, model, 1)
    with deterministic(5):
        student = pair.open()
    asked = QuerySet.from_texts(["how badu", "how befi"], pair)
    found = student.vectors(asked)
    assert found.shape == (2, 8)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    before = student.state()
    (projection,) = [name for name in before if name.startswith("2.")]
    assert before[projection].shape == (8, 16)
    with deterministic(5):
        again = pair.open()
    assert (again.state()[projection] == before[projection]).all()
    student.restore({name: one * 2 for name, one in before.items()}, 1.0)
    assert (student.state()[projection] == before[projection] * 2).all()
    assert pair.identity != distilled.pair.identity


def test_token_embeddings_of_several_layers_stay_the_teachers(distilled: Distilled) -> None:
    pair = TeacherPair(distilled.pair.teacher, distilled.pair.cache, None, 2)
    names = {name for name, one in pair.open().loaded.named_parameters() if not one.requires_grad}
    assert {part for name in names for part in name.split(".") if part in {"embeddings", "pooler", "encoder"}} == {
        "embeddings",
        "pooler",
    }


def test_all_but_a_pooler_learns(distilled: Distilled) -> None:
    student = distilled.pair.open()
    assert isinstance(student, Student)
    names = {name for name, one in student.loaded.named_parameters() if not one.requires_grad}
    assert names
    assert all("pooler" in name for name in names)
    assert student.n_parameters == sum(one.size for one in student.state().values())
