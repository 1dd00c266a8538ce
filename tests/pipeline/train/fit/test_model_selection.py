"""What settings are chosen on: folds that neither share a cluster nor count a positive that was learned."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.train.data.dataset import Task
from darklode.pipeline.train.fit import model_selection
from darklode.pipeline.train.fit.head_methods import ClosedFormMethod
from darklode.pipeline.train.fit.model_selection import (
    ValidationScore,
    average_folds,
    best_score,
    best_setting,
    folds,
    full_training,
    selection_queries,
    without_shared_positives,
)
from darklode.pipeline.train.fit.stage import best_trial
from darklode.schemas.adaptation_tables import ADAPTATION_TRIALS
from helpers.runs import put

from ..conftest import QUICK, Adapted


@pytest.fixture
def task(adapted: Adapted) -> Task:
    tables = adapted.out.tables()
    return Task.from_tables(tables, adapted.base.open(tables), same_document=False)


@pytest.mark.slow
def test_each_query_is_held_out_once_by_cluster_and_learned_from_elsewhere(task: Task) -> None:
    found = folds(task, 3)
    held = [query for one in found for query in one.validation.ids.to_pylist()]
    assert sorted(held) == sorted([*task.train.ids.to_pylist(), *task.validation.ids.to_pylist()])
    for one in found:
        assert not set(one.train.ids.to_pylist()) & set(one.validation.ids.to_pylist())
        assert not any(query.startswith("validation") for query in one.train.ids.to_pylist()), "they teach nothing"
        assert len(one.pair_query) == len(one.train) > 0
        assert one.labels.contains(one.pair_query, one.pair_position).all(), "queries are numbered anew"
        taught = task.train.ids.to_pylist()
        back = np.array([taught.index(query) for query in one.train.ids.to_pylist()])
        assert task.labels.contains(back[one.pair_query], one.pair_position).all()
        assert one.probabilities is not None
        assert task.probabilities is not None
        np.testing.assert_array_equal(
            one.probabilities.look_up(one.pair_query, one.pair_position),
            task.probabilities.look_up(back[one.pair_query], one.pair_position),
        )
    assert [one.validation.ids for one in folds(task, 3)] == [one.validation.ids for one in found]
    assert [one.validation.ids for one in folds(task, 4)] != [one.validation.ids for one in found]


def test_queries_of_a_cluster_are_held_out_together(task: Task) -> None:
    groups = pa.array([f"g{number // 4}" for number in range(len(task.train))])
    grouped = Task(**{**vars(task), "train": type(task.train)(**{**vars(task.train), "groups": groups})})
    for one in folds(grouped, 0):
        held = {group for group in one.validation.groups.to_pylist() if group.startswith("g")}
        assert not held & set(one.train.groups.to_pylist())


def test_a_held_out_query_whose_positive_is_learned_does_not_count(task: Task) -> None:
    """The first two train queries get each other's positives: whichever is held out alone is no test."""
    first, second = task.pair_position[:2]
    both = task.train.labels.to_pylist()
    texts = dict(zip(task.train.ids.to_pylist()[:2], (1, 0), strict=True))
    rows = {int(task.frozen.position_of[row]): row for row in range(len(task.frozen.texts))}
    name = task.frozen.texts["text_id"]
    more = [
        {**both[0], "query_id": query, "relevance": 1, "text_id": name[rows[int((first, second)[other])]].as_py()}
        for query, other in texts.items()
    ]
    labels = pa.concat_tables([task.train.labels, pa.Table.from_pylist(more, schema=task.train.labels.schema)])
    sharing = Task(**{**vars(task), "train": type(task.train)(**{**vars(task.train), "labels": labels})})
    for one in folds(sharing, 3):
        for query in texts:
            if query in one.validation.ids.to_pylist():
                assert not set(texts) & set(one.train.ids.to_pylist())
    lost = {query for query in texts if not any(query in one.validation.ids.to_pylist() for one in folds(sharing, 3))}
    assert lost == set(texts)


def test_means_are_over_queries_not_over_folds() -> None:
    found = average_folds(
        [
            [ValidationScore(0, 0.5, 10), ValidationScore(1, 0.2, 10)],
            [ValidationScore(0, 0.2, 30), ValidationScore(1, 0.6, 30)],
        ]
    )
    assert [(one.share, one.queries) for one in found] == [(0, 40), (1, 40)]
    assert [one.value for one in found] == pytest.approx([0.275, 0.5])


def test_the_last_training_is_on_all_train_queries(task: Task) -> None:
    assert full_training(task).train is task.train
    assert full_training(task).keep_last
    assert len(full_training(Task(**{**vars(task), "validation": task.validation.take(np.arange(0))})).validation)


def test_what_is_solved_for_one_fold_is_not_taken_for_another(task: Task, adapted: Adapted) -> None:
    method = ClosedFormMethod(QUICK.model_copy(update={"method": "closed_form"}), adapted.base)
    one, other = (method.fit(part, 1.0, 0, lambda *_: None).best_weights for part in folds(task, 3)[:2])
    assert np.abs(one["0.weight"] - other["0.weight"]).max() > 0


def test_of_equal_settings_the_one_nearest_to_the_base_is_trained_and_handed_over(run: Run) -> None:
    assert (
        best_setting([ValidationScore(0.5, 0.7, 3), ValidationScore(0.25, 0.7, 3), ValidationScore(0.25, 0.7, 3)]) == 1
    )
    draws = np.random.default_rng(0)
    for _ in range(30):
        values = draws.integers(0, 3, (3, 4)) / 2
        trials = [[ValidationScore(place / 4, value, 3) for place, value in enumerate([0.5, *row])] for row in values]
        rows = [
            {"trial": number, "setting": "", "step": 1, "share": one.share, "validation": one.value, "queries": 3}
            for number, trial in enumerate(trials)
            for one in trial
        ]
        put(run, ADAPTATION_TRIALS.name, pa.Table.from_pylist(rows, schema=ADAPTATION_TRIALS.schema))
        handed_over, bests = best_trial(run.tables()), [best_score(trial) for trial in trials]
        trained = best_setting(bests)
        assert (handed_over["trial"], handed_over["share"]) == (trained, bests[trained].share), values


def test_validation_queries_that_share_a_positive_with_training_do_not_select(task: Task) -> None:
    query, position = task.validation.positives(task.frozen)
    assert len(without_shared_positives(task).validation) == len(task.validation), "none shares one"
    taken = replace(task, pair_position=np.r_[task.pair_position[1:], position[query == 3][:1]])
    found = without_shared_positives(taken).validation.ids.to_pylist()
    assert found == [name for row, name in enumerate(task.validation.ids.to_pylist()) if row != 3]


def test_the_selection_uses_train_queries_too_where_few_validation_queries_share_nothing(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(selection_queries(task)) == len(task.train) + len(task.validation)
    monkeypatch.setattr(model_selection, "MIN_VALIDATION", len(task.validation))
    assert selection_queries(task).ids.to_pylist() == task.validation.ids.to_pylist()
    assert folds(task, 3) == []
    query, position = task.validation.positives(task.frozen)
    sharing = replace(task, pair_position=np.r_[task.pair_position[1:], position[query == 3][:1]])
    assert len(selection_queries(sharing)) == len(task.train) + len(task.validation)
    assert folds(sharing, 3)
