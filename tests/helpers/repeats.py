"""Cases of one property, of which some run in `make test` and all the others in `make test-all`."""

from collections.abc import Iterable

import pytest


def mostly_slow(cases: Iterable[object], *, fast: int | Iterable[object]) -> list[object]:
    """The cases as a test's parameters, a tuple several of them; `fast` are those for `make test`, or how many."""
    all_of_them = list(cases)
    quick = all_of_them[:fast] if isinstance(fast, int) else list(fast)
    assert all(case in all_of_them for case in quick), "a fast case is none of the cases"
    return [case if case in quick else _slow(case) for case in all_of_them]


def _slow(case: object) -> object:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
