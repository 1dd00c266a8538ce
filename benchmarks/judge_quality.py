"""How far the embedded judge agrees with human judgments, and whether it can say that nothing answers.

    python -m benchmarks.judge_quality                # writes benchmarks/results/judge_quality.{md,json}

On the pool of the seven embedded retrievers; a chunk counts as positive if its document was judged relevant. The four
collections list positives only: what is not listed was never judged and counts as not relevant here, so precision and
kappa are lower than a full judgment would give. Cranfield's papers from which a question came are left out.

The judge's weights were fitted to these four. `left out` shows what remains when weights and cut are fitted to the
other three. Beside it in the same run: version 1 of the judge, whose constants were chosen on all four, and coverage
alone, its one threshold chosen on the other three. homedepot, graded by people from 0 to 3, took part in nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from benchmarks.agreement import best_cut, kappa, places, share_answered, tau, within_query_auc
from benchmarks.collections_io import COLLECTIONS, LABELLED
from benchmarks.judged_pools import Judged, cases, graded
from benchmarks.report import machine, markdown_table, write
from darklode.pipeline.judge.kinds.embedded import EmbeddedSettings
from darklode.pipeline.judge.logistic import Logistic
from darklode.schemas.settings import TripletSettings

UNSEEN = "homedepot"
FORMER_CUT = 0.6
CUTS = np.linspace(0.02, 0.98, 97)
CASES = {"whole": 1.0, "robbed": 0.5, "strangers": 0.25}
"""What each kind of pool weighs in the fit: queries with an answer, some without, and none with one."""

CAVEAT = "Positives only: what is not listed was never judged, and counts as not relevant."

Pools = Mapping[str, Mapping[str, Judged]]
Scorer = Callable[[Judged], NDArray[np.float64]]


@dataclass(frozen=True)
class Fitted:
    """Weights of the absolute features, and the cut of best agreement."""

    model: Logistic
    cut: float

    def __str__(self) -> str:
        return " ".join(f"{number:.2f}" for number in (*self.model.weights, self.model.intercept))

    def __call__(self, judged: Judged) -> NDArray[np.float64]:
        """The probability of each pair, shape (n_pairs,)."""
        return self.model.probability(judged.absolute)


def fit(pools: Sequence[Mapping[str, Judged]]) -> Fitted:
    """Weights and intercept, each collection weighing the same, then the cut of the best mean kappa on whole pools."""
    parts = [(of[case], weight) for of in pools for case, weight in CASES.items()]
    features = np.concatenate([judged.absolute for judged, _ in parts])
    positive = np.concatenate([judged.positive for judged, _ in parts])
    weights = np.concatenate([np.full(len(judged.query), weight / len(judged.query)) for judged, weight in parts])
    spread = features.std(axis=0)
    found = LogisticRegression(C=1e3, max_iter=1000).fit(features / spread, positive, weights / weights.mean())
    model = Logistic(tuple(found.coef_[0] / spread), float(found.intercept_[0]))
    return Fitted(model, cut_of(pools, Fitted(model, 0)))


def cut_of(pools: Sequence[Mapping[str, Judged]], score: Scorer) -> float:
    """The cut of the best mean kappa on whole pools."""
    return best_cut([(score(of["whole"]), of["whole"].positive) for of in pools], CUTS)


def left_out(name: str, pools: Pools) -> dict[str, Any]:
    """A collection's figures with everything fitted to the others, and beside them those of what ships."""
    others, own = [of for other, of in pools.items() if other != name], pools[name]
    fitted, threshold = fit(others), cut_of(others, lambda judged: judged.coverage)
    return {
        "collection": name,
        "queries": len(own["whole"].answerable),
        "pairs": len(own["whole"].query),
        "positive": own["whole"].positive.mean(),
        "weights": str(fitted),
        "cut": fitted.cut,
        **labels("coverage", own, lambda judged: judged.coverage, threshold),
        **labels("version 1", own, lambda judged: judged.former, FORMER_CUT),
        **labels("left out", own, fitted, fitted.cut),
        **labels("ships", own, lambda judged: judged.probability, EmbeddedSettings().cut),
        **training("left out", own, fitted),
        **training("ships", own, lambda judged: judged.probability),
    }


def labels(who: str, own: Mapping[str, Judged], score: Scorer, cut: float) -> dict[str, float]:
    """Agreement of the labels on the whole pool, and how many queries get a positive with and without an answer."""
    whole, robbed, strangers = (own[case] for case in CASES)
    said = score(whole) >= cut
    there = robbed.answerable
    figures = {
        "kappa": kappa(said, whole.positive),
        "precision": whole.positive[said].mean() if said.any() else float("nan"),
        "recall": said[whole.positive].mean(),
        "called": said.mean(),
        "auc": within_query_auc(whole.query, score(whole), whole.positive),
        "tau": tau(whole.found_by, said, whole.positive),
        "answered": share_answered(robbed.query, score(robbed) >= cut, there),
        "answered though robbed": share_answered(robbed.query, score(robbed) >= cut, ~there),
        "answered though strange": share_answered(strangers.query, score(strangers) >= cut, ~strangers.answerable),
    }
    return {f"{who}: {name}": value for name, value in figures.items()}


def training(who: str, own: Mapping[str, Judged], score: Scorer) -> dict[str, float]:
    """Of the positives from which triplets are made: how many are relevant, how many a query has, who gets some."""
    chosen, whole, robbed = TripletSettings(), own["whole"], own["robbed"]
    learned = {
        name: (score(of) >= chosen.min_probability) & (places(of.query, score(of)) <= chosen.max_positives)
        for name, of in own.items()
    }
    figures = {
        "training precision": whole.positive[learned["whole"]].mean(),
        "training positives a query": learned["whole"].sum() / len(whole.answerable),
        "trained though robbed": share_answered(robbed.query, learned["robbed"], ~robbed.answerable),
    }
    return {f"{who}: {name}": value for name, value in figures.items()}


def unseen(judged: Judged, pools: Pools) -> list[dict[str, Any]]:
    """The three judges on pairs that people graded, everything chosen on the four collections."""
    threshold = cut_of(list(pools.values()), lambda one: one.coverage)
    judges: dict[str, tuple[NDArray[np.float64], float]] = {
        "coverage alone": (judged.coverage, threshold),
        "version 1": (judged.former, FORMER_CUT),
        "version 2": (judged.probability, EmbeddedSettings().cut),
        "version 2, where triplets begin": (judged.probability, TripletSettings().min_probability),
    }
    return [
        {
            "judge": name,
            "cut": cut,
            "kappa": kappa(score >= cut, judged.positive),
            "precision": judged.positive[score >= cut].mean(),
            "recall": (score >= cut)[judged.positive].mean(),
            "called": (score >= cut).mean(),
            "auc": within_query_auc(judged.query, score, judged.positive),
            "queries without a positive": 1 - share_answered(judged.query, score >= cut, judged.answerable),
        }
        for name, (score, cut) in judges.items()
    ]


def markdown(rows: list[dict[str, Any]], found: list[dict[str, Any]], people: Judged, fitted: Fitted) -> str:
    """The report: what is counted, where it was measured, the four collections, the unseen one."""
    names = [name for name in rows[0] if name not in {"collection", "weights"}]
    each = [[name, *(_shown(row[name]) for row in rows), _shown(fmean(row[name] for row in rows))] for name in names]
    weights = ["weights, intercept", *(row["weights"] for row in rows), f"all four: {fitted}"]
    size = f"{len(people.query):,} pairs of {len(people.answerable):,} queries, {people.positive.mean():.0%} relevant"
    four = markdown_table(["figure", *(row["collection"] for row in rows), "mean"], [weights, *each])
    other = markdown_table(list(found[0]), [[_shown(cell) for cell in row.values()] for row in found])
    return "\n\n".join([CAVEAT, machine(), four, f"{UNSEEN}, relevant from grade 2 on: {size}.", other])


def _shown(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collections", type=Path, default=COLLECTIONS, help="folder of the collections (BEIR layout)")
    root = parser.parse_args().collections
    pools = {name: cases(name, root) for name in LABELLED}
    rows = [{key: _plain(value) for key, value in left_out(name, pools).items()} for name in LABELLED]
    people = graded(UNSEEN, root)
    found = [{key: _plain(value) for key, value in row.items()} for row in unseen(people, pools)]
    write(
        "judge_quality",
        markdown(rows, found, people, fit(list(pools.values()))),
        {"collections": rows, "unseen": found},
    )


def _plain(value: Any) -> Any:
    return round(float(value), 3) if isinstance(value, (float, np.floating)) else value


if __name__ == "__main__":
    main()
