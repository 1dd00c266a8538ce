"""Reproducible sums and random draws."""

import os

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


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_kernels_stay_as_they_are() -> None:
    with deterministic(1):
        assert not torch.are_deterministic_algorithms_enabled()


def test_with_a_gpu_kernels_are_deterministic_and_the_choice_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    filled = torch.utils.deterministic.fill_uninitialized_memory
    with deterministic(1):
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.utils.deterministic.fill_uninitialized_memory == filled


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU")
def test_gradients_of_attention_repeat_on_a_gpu() -> None:
    gradients = []
    for _ in range(2):
        with deterministic(1):
            queries, keys, values = (torch.randn(64, 12, 256, 32, device="cuda", requires_grad=True) for _ in range(3))
            mask = torch.zeros(64, 1, 256, 256, device="cuda", dtype=torch.bfloat16)
            parts = [part.bfloat16() for part in (queries, keys, values)]
            torch.nn.functional.scaled_dot_product_attention(*parts, attn_mask=mask).square().sum().backward()
            gradients.append([part.grad.cpu() for part in (queries, keys, values)])
    assert all(torch.equal(first, again) for first, again in zip(*gradients, strict=True))
