"""Laws on the page: verdicts, a curve with its band for each law, stars for what is held out, and correlations."""

from pathlib import Path

import numpy as np
import pytest

from darklode.flows.jobs.fit_laws import fit_laws
from darklode.flows.report import write_report
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.report.drawing import Curves
from helpers.report_runs import figures, parsed, rows_of, shown, text_of


@pytest.fixture(scope="module")
def laws(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A planted law of two measures, three seeds a size."""
    root, draws = tmp_path_factory.mktemp("laws"), np.random.default_rng(0)
    lines = ["size,value,seed,measure"]
    for size in 2 ** np.arange(5, 12):
        for seed in range(3):
            entropy = ((300 / size) ** 0.5 + 0.9) * np.exp(draws.normal(0, 0.002))
            lines.append(f"{size},{entropy},{seed},contrastive_entropy")
            lines.append(f"{size},{0.8 - entropy / 10},{seed},nDCG@10")
    (root / "points.csv").write_text("\n".join(lines) + "\n")
    return fit_laws(str(root / "points.csv"), str(root / "laws"))


@pytest.mark.slow
def test_the_page_tells_verdicts_curves_and_correlations(laws: Run) -> None:
    written = Path(write_report(laws)).read_bytes()
    root = parsed(written)
    assert "Scaling laws of labelled data" in text_of(root)
    assert "Encoders trained 21 Laws found 2 Laws tested 2" in text_of(root)
    assert [key for key in figures(root) if key.startswith("law-")] == [
        "law-verdicts",
        "law-curves",
        "law-correlations",
    ]
    assert [row["verdict"] for row in rows_of(root, "law-verdicts")] == ["law", "law"]
    (correlated,) = rows_of(root, "law-correlations")
    assert correlated["pearson"] == "-1"
    assert written.count(b"\xe2\x98\x85<title>") == 2, "a star for each measure's largest size"
    assert Path(write_report(laws)).read_bytes() == written


@pytest.mark.slow
def test_a_curve_has_its_band_around_it_and_goes_on_beyond(laws: Run) -> None:
    drawn = shown(laws)["law-curves"].drawings
    assert len(drawn) == 2
    for one in drawn:
        assert isinstance(one, Curves)
        band, line, dots, stars = one.curves
        assert [curve.shape for curve in one.curves] == ["band", "line", "dots", "stars"]
        assert (len(line.points), len(dots.points), len(stars.points)) == (9, 6, 1)
        low, high = band.points[:9], band.points[:8:-1]
        for below, middle, above in zip(low, line.points, high, strict=True):
            assert below.x == middle.x == above.x
            assert below.y <= middle.y <= above.y
        assert [point.x for point in line.points] == pytest.approx(np.linspace(0, 100, 9), abs=0.01)
