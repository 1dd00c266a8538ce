"""Fewer looks for garbage while calls are under way, and as many as before afterwards."""

import gc

import pytest

from darklode.pipeline.base.remote.gc_tuning import rarely_collected


def test_what_was_set_before_is_set_again_however_contexts_overlap() -> None:
    before = gc.get_threshold()
    one, other = rarely_collected(), rarely_collected()
    one.__enter__()
    assert gc.get_threshold()[0] > before[0]
    other.__enter__()
    one.__exit__(None, None, None)
    assert gc.get_threshold()[0] > before[0], "the other is still open"
    other.__exit__(None, None, None)
    assert gc.get_threshold() == before


def test_a_failure_inside_leaves_nothing_behind() -> None:
    before = gc.get_threshold()
    with pytest.raises(ValueError, match="inside"), rarely_collected():
        raise ValueError("inside")
    assert gc.get_threshold() == before
