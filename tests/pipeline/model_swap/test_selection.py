"""All maps are fitted, and the best on validation is selected."""

from dataclasses import replace

import numpy as np

from darklode.pipeline.model_swap import selection
from darklode.pipeline.model_swap.selection import METHODS, MapTrial, best_trial, fit_maps, pair_groups
from helpers.swapped import rotation, swap_vectors


def test_every_method_is_tried_and_a_rotation_is_undone() -> None:
    reported = list[MapTrial]()
    trials = fit_maps(swap_vectors(rotation(8)), 1, reported.append)
    assert list(dict.fromkeys(trial.method for trial in trials)) == list(METHODS)
    assert len(reported) == len(trials)
    best = best_trial(trials)
    assert (best.method, best.recall_10, best.recall_100) == ("procrustes", 1.0, 1.0), "the simplest of equals"
    assert best_trial(trials, "ridge").method == "ridge"


def test_the_mix_of_queries_and_documents_and_the_sample_size_are_settings() -> None:
    vectors = swap_vectors(rotation(8), documents=2400)
    assert [name for name, _ in pair_groups(vectors)] == [
        "80 queries",
        "1,000 documents",
        "80 queries and 1,000 documents",
        "1,200 documents",
        "80 queries and 1,200 documents",
    ]


def test_documents_alone_suffice() -> None:
    vectors = swap_vectors(rotation(8))
    none = vectors.train.take(np.arange(0))
    trials = fit_maps(replace(vectors, train=none), 1)
    assert {trial.method for trial in trials} == set(METHODS) - {"distilled", "mlp"}
    assert best_trial(trials).recall_10 == 1.0


def test_a_validation_query_without_results_counts_nothing() -> None:
    vectors = swap_vectors(rotation(8))
    vectors.validation.new[0] = 0
    assert selection.Validation(vectors).recall([(rotation(8).T.copy(), np.zeros(8, np.float32))])[0] == 1.0
