"""The tree of errors, as the module draws it."""

from __future__ import annotations

import re

from darklode.pipeline.base import errors


def test_the_tree_in_the_docstring_is_the_tree_of_classes() -> None:
    drawn = re.findall(r"^([│├└─ ]*)([A-Z]\w+)(?: {2,}|$)", errors.__doc__ or "", re.M)
    parents: list[str] = []
    for branch, name in drawn:
        parents[len(branch) // 4 :] = [name]
        kind = getattr(errors, name)
        assert kind.__mro__[1].__name__ == (parents[-2] if len(parents) > 1 else "Exception")
        assert kind.__doc__
    own = {name: kind for name, kind in vars(errors).items() if getattr(kind, "__module__", "") == errors.__name__}
    classes = {name for name, kind in own.items() if isinstance(kind, type)}
    assert {name for _, name in drawn} == classes
