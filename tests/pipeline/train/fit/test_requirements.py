"""What a method needs is looked for, and named with what installs it."""

import pytest

from darklode.pipeline.base.errors import MissingPart
from darklode.pipeline.train.fit import requirements
from darklode.pipeline.train.fit.requirements import check_parts


@pytest.mark.parametrize("name", ["linear", "closed_form", "lora", "full"])
def test_here_all_is_installed(name: str) -> None:
    check_parts(name)


@pytest.mark.parametrize(
    ("method", "missing", "named"),
    [("lora", "peft", "peft"), ("linear", "torch", "torch"), ("full", "datasets", "datasets"), ("full", "peft", None)],
)
def test_a_missing_package_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, method: str, missing: str, named: str | None
) -> None:
    monkeypatch.setattr(requirements, "find_spec", lambda name: None if name == missing else name)
    if named is None:
        check_parts(method)
        return
    with pytest.raises(MissingPart, match=rf'method {method} needs {named}: pip install "darklode\[train\]"'):
        check_parts(method)
