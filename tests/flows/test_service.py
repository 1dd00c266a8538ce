"""What `darklode serve` refuses to open."""

from pathlib import Path

import pytest

from darklode.flows.service import serving_of
from darklode.pipeline.base.errors import CommandLineError, DarklodeError, DoesNotFit


def refused(folder: Path, *encoders: str, tenant: str | None = None) -> DarklodeError:
    with pytest.raises(DarklodeError) as caught, serving_of(str(folder), encoders, tenant):
        pass
    return caught.value


def test_what_does_not_belong_together_is_refused(shipped: Path, indexed: Path, tmp_path: Path) -> None:
    run, adapter, index = shipped / "run", str(shipped / "adapter"), indexed / "index"
    for error, kind, message in (
        (refused(run, "base", "base"), CommandLineError, "none twice"),
        (refused(run, "base", adapter, "x"), CommandLineError, "one encoder or two"),
        (refused(run, str(tmp_path)), CommandLineError, "name base, or a folder of"),
        (refused(run, adapter, tenant="other"), DoesNotFit, "is the tenant acme's, and nothing for other"),
        (refused(index, tenant="other"), DoesNotFit, "nothing of other"),
        (refused(index, adapter), DoesNotFit, "is made from"),
        (refused(tmp_path / "gone"), DarklodeError, "holds no run"),
    ):
        assert isinstance(error, kind)
        assert message in str(error)
