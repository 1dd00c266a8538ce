"""How a student learns: the trainer's steps are those of a plain loop."""

import numpy as np
import pyarrow as pa
import pytest
import torch
import transformers

from darklode.pipeline.towers.course import DECAY, Lesson, Look, Rounds, distances, learn
from darklode.pipeline.towers.loss import distillation, parts
from darklode.pipeline.towers.stage import asked
from darklode.pipeline.towers.watch import Course
from darklode.pipeline.train.loop import steady
from darklode.schemas.towers import TowerSettings

from .conftest import Distilled

SHORT = TowerSettings(layers=1, steps=12, batch=16)


@pytest.fixture(scope="module")
def lesson(distilled: Distilled) -> Lesson:
    texts = pa.array(
        [f"how {one}" for one in "badu befi kuma lopa nidu rasi tepo vinu zoka mela hido pagu".split()] * 3
    )
    return Lesson(texts, distilled.pair, asked(distilled.out.tables(), distilled.pair, "validation"))


def course_of(distilled: Distilled, lesson: Lesson, seed: int) -> Course[Look]:
    with steady(seed):
        return learn(lesson, SHORT, 3e-3, distilled.pair.open(), seed, lambda *_: None)


def test_the_trainers_steps_are_those_of_a_plain_loop(distilled: Distilled, lesson: Lesson) -> None:
    """Order of queries, Eq. 15, AdamW with its decay, warm-up and fall, and the cut of gradients, written out."""
    course = course_of(distilled, lesson, 1)
    with steady(1):
        student, turns = distilled.pair.open(), Rounds(len(lesson.texts), SHORT.batch, 1)
        student.loaded.train()
        optimiser = torch.optim.AdamW(student.parameters(), lr=3e-3, weight_decay=DECAY, fused=True)
        schedule = transformers.get_linear_schedule_with_warmup(optimiser, 1, SHORT.steps)
        for _ in range(course.step):
            texts = lesson.of(turns.next().tolist())
            found = student.unit(student.loaded(student.features(texts))["sentence_embedding"])
            loss = distillation(*parts(torch.from_numpy(distilled.pair.queries(texts)), found))
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(list(student.parameters()), 1.0)
            optimiser.step()
            schedule.step()
    assert course.step > 6
    for name, one in student.state().items():
        np.testing.assert_allclose(course.best[name], one, atol=1e-5)


def test_the_same_seed_gives_the_same_bytes(distilled: Distilled, lesson: Lesson) -> None:
    first, again, other = (course_of(distilled, lesson, seed) for seed in (1, 1, 2))
    assert [one.tobytes() for one in first.best.values()] == [one.tobytes() for one in again.best.values()]
    assert [one.tobytes() for one in first.best.values()] != [one.tobytes() for one in other.best.values()]
    assert first.looks == again.looks
    assert [look.step for look in first.looks] == list(range(13))


def test_each_query_has_its_turn_in_each_round() -> None:
    turns = Rounds(10, 4, 3)
    seen = np.concatenate([turns.next() for _ in range(5)])
    assert sorted(seen[:10]) == sorted(seen[10:]) == list(range(10))
    assert Rounds(3, 4, 3).size == 3


def test_the_distance_is_that_of_the_bound() -> None:
    teacher, student = np.eye(3, dtype=np.float32), np.roll(np.eye(3, dtype=np.float32), 1, axis=0)
    np.testing.assert_allclose(distances(teacher, student), [2**0.5] * 3)
