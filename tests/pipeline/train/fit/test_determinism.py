"""Reproducible sums and random draws."""

import pytest
import torch

from darklode.pipeline.train.fit.determinism import deterministic


def test_draws_repeat_on_one_thread_and_the_number_of_threads_is_restored() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        drawn = []
        for seed in (5, 5, 6):
            with deterministic(seed):
                assert torch.get_num_threads() == 1
                drawn.append(torch.rand(4).tolist())
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert drawn[0] == drawn[1] != drawn[2]


def test_threads_are_restored_after_an_error() -> None:
    threads = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError), deterministic(1):
        1 / 0  # noqa: B018
    assert torch.get_num_threads() == threads
