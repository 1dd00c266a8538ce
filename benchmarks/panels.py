"""Panels of recorded LLM judges.

Kappa with people on held-out topics of 33 published LLM judges of one TREC test set (25 topics, 4,423 pairs) and of six
recorded runs of one LLM judge on trec-dl-2019 (43 topics); grade 2 and more is relevant. Each draw takes a random panel
and a random half of the topics; people's labels are a random sample of that half, and every figure is measured on the
other half. "Best member" has the highest kappa on the same labels; "best member in hindsight" the highest on the other
half (an upper limit, which nobody can choose). Weighted: weights by logistic regression on people's labels, shrunk
toward equal weights; the prior was chosen on trec-dl-2019. Dawid-Skene: weights by agreement among the members; it is
not part of Darklode, because members that err together mislead it (two prompts for each run on trec-dl-2019). "As
proposed": the vote that `darklode judge calibration` proposes, and the best member where it proposes none.

Proposals: how often a panel is proposed (the interval of its cross-validated difference from the best member, which is
chosen on the same labels, is above 0), and how often the proposed panel is worse than that member on the other half.

The verdicts have no texts and no probabilities, so votes on probabilities are left out.

Takes three minutes.

    python -m benchmarks.panels [--quick] [--collections FOLDER]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.csv
from numpy.typing import NDArray

from benchmarks.collections_io import existing, options
from benchmarks.report import ResultTable, publish
from darklode.pipeline.base.agreement import cohens_kappa, confusion, has_enough_labels
from darklode.pipeline.base.types import Doubles
from darklode.pipeline.judge.panel_comparison import (
    MAJORITY,
    WEIGHTED,
    LabelledVotes,
    PanelComparison,
    PanelVotes,
    compare_votes,
    panel_agreement,
)
from darklode.pipeline.judge.panel_weights import stack_members, weighted_votes

RELEVANT_FROM = 2
SIZES, LABELS, DRAWS = (3, 5, 9), (100, 400), 60
QUICK_DRAWS, ITERATIONS = 5, 100
BEST, HINDSIGHT, MEAN, PROPOSED = "best member", "best member in hindsight", "mean member", "as proposed"
DAWID_SKENE = "Dawid-Skene"
METHODS = (MEAN, BEST, HINDSIGHT, MAJORITY, WEIGHTED, DAWID_SKENE, PROPOSED)


@dataclass(frozen=True)
class RecordedVerdicts:
    """Labels of recorded judges and of people on the same pairs.

    Attributes:
        judges: names.
        topic: topic number of each pair, shape (n_pairs,).
        positive: relevant to people, shape (n_pairs,).
        votes: relevant to each judge, 1 or 0, shape (n_pairs, n_judges).
    """

    judges: list[str]
    topic: NDArray[np.int64]
    positive: NDArray[np.bool_]
    votes: NDArray[np.float64]


def read_llm_judges(root: Path) -> RecordedVerdicts:
    """The 33 judges of `llm-judges`."""
    return _read(existing(root / "llm-judges" / "labels.tsv"), None)


def read_trec_dl_2019(root: Path) -> RecordedVerdicts:
    """The six runs of `trec-dl-2019`."""
    return _read(existing(root / "trec-dl-2019" / "llm_judgments.tsv"), root / "trec-dl-2019" / "qrels" / "test.tsv")


def _read(path: Path, qrels: Path | None) -> RecordedVerdicts:
    read_options = pyarrow.csv.ParseOptions(delimiter="\t")
    rows = pyarrow.csv.read_csv(path, parse_options=read_options)
    keys = ["query-id", "corpus-id"]
    if qrels is not None:
        rows = rows.join(pyarrow.csv.read_csv(qrels, parse_options=read_options), keys, join_type="inner")
    rows = rows.sort_by([(key, "ascending") for key in keys])
    people = "human" if qrels is None else "score"
    judges = [name for name in rows.column_names if name not in {*keys, people}]
    grades = np.stack([rows[name].to_numpy() for name in judges], axis=1)
    topic = np.unique(rows["query-id"].to_numpy(), return_inverse=True)[1]
    return RecordedVerdicts(
        judges, topic, rows[people].to_numpy() >= RELEVANT_FROM, (grades >= RELEVANT_FROM).astype(np.float64)
    )


def kappa(labels: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    """Cohen's kappa; 0 if all pairs have the same label."""
    return float(np.nan_to_num(cohens_kappa(confusion(labels == 1, positive))))


def dawid_skene(votes: Doubles) -> Doubles:
    """Labels by the model of Dawid and Skene (1979), without people's labels, shape (n_pairs,).

    Expectation-maximization of the share of relevant pairs and of each member's sensitivity and specificity, started
    from the vote shares. It takes errors as independent.

    Args:
        votes: 1 or 0, shape (n_pairs, n_members).
    """
    posterior = votes.mean(axis=1)
    for _ in range(ITERATIONS):
        relevant, not_relevant = posterior, 1 - posterior
        # One added pair of each kind keeps the shares inside (0, 1).
        sensitivity = (relevant @ votes + 1) / (relevant.sum() + 2)
        specificity = (not_relevant @ (1 - votes) + 1) / (not_relevant.sum() + 2)
        yes_evidence = np.log(sensitivity / (1 - specificity))
        no_evidence = np.log((1 - sensitivity) / specificity)
        prior = np.log((relevant.sum() + 1) / (not_relevant.sum() + 1))
        posterior = 1 / (1 + np.exp(-(prior + votes @ yes_evidence + (1 - votes) @ no_evidence)))
    return np.asarray(posterior >= 0.5, np.float64)


@dataclass(frozen=True)
class Draw:
    """A random panel with people's labels, and the other half of the topics.

    Attributes:
        panel: votes and labels.
        votes: of the other half, shape (n_pairs, n_members).
        unsupervised: labels of the other half by Dawid and Skene's model of all pairs.
        positive: people's labels of the other half.
    """

    panel: PanelVotes
    votes: NDArray[np.float64]
    unsupervised: NDArray[np.float64]
    positive: NDArray[np.bool_]


def draws(verdicts: RecordedVerdicts, size: int, n_labels: int, n_draws: int) -> Iterator[Draw]:
    """Random panels; a draw without enough labels of each class is repeated."""
    random, n_made = np.random.default_rng([size, n_labels]), 0
    n_topics = int(verdicts.topic.max()) + 1
    while n_made < n_draws:
        members = random.permutation(len(verdicts.judges))[:size]
        is_labelled_half = np.isin(verdicts.topic, random.permutation(n_topics)[: (n_topics + 1) // 2])
        rows = np.sort(random.permutation(np.flatnonzero(is_labelled_half))[:n_labels])
        if not has_enough_labels(verdicts.positive[rows]):
            continue
        n_made += 1
        votes = verdicts.votes[:, members]
        labelled = LabelledVotes(
            np.unique(verdicts.topic[rows], return_inverse=True)[1],
            verdicts.positive[rows],
            np.ones(len(rows)),
            votes[rows],
            weighted_votes(votes[rows], (1.0,) * size),
        )
        names = [verdicts.judges[member] for member in members]
        other_half = ~is_labelled_half
        yield Draw(
            PanelVotes(names, labelled),
            votes[other_half],
            dawid_skene(votes)[other_half],
            verdicts.positive[other_half],
        )


def measure(draw: Draw) -> tuple[dict[str, float], PanelComparison]:
    """Kappa on the other half by method, and the comparison made from the labels alone."""
    compared = compare_votes(draw.panel)
    assert compared is not None
    labelled = draw.panel.labelled
    member_kappas = [kappa(votes, draw.positive) for votes in draw.votes.T]
    weights = {MAJORITY: (1.0,) * len(member_kappas), WEIGHTED: stack_members(labelled.votes, labelled.positive)}
    labels = {name: weighted_votes(draw.votes, member_weights) for name, member_weights in weights.items()}
    labels[DAWID_SKENE] = draw.unsupervised
    figures = {name: kappa(method_labels, draw.positive) for name, method_labels in labels.items()}
    figures |= {BEST: member_kappas[compared.best_member], HINDSIGHT: max(member_kappas)}
    figures |= {MEAN: float(np.mean(member_kappas))}
    proposed = compared.proposed
    figures[PROPOSED] = figures[BEST] if proposed is None else figures[_method(proposed.vote)]
    return figures, compared


def _method(vote: str) -> str:
    """The vote as built is a majority here."""
    return vote if vote in METHODS else MAJORITY


def measured_rows(
    name: str, verdicts: RecordedVerdicts, sizes: Sequence[int], n_draws: int
) -> tuple[list[list[object]], list[list[object]]]:
    """Rows of the table of kappas, and of the table of proposals."""
    kappa_rows, proposal_rows = [], []
    for size in sizes:
        for n_labels in LABELS:
            measured = [measure(draw) for draw in draws(verdicts, size, n_labels, n_draws)]
            means = [float(np.mean([figures[method] for figures, _ in measured])) for method in METHODS]
            kappa_rows.append([name, size, n_labels, *means])
            proposals = [figures for figures, compared in measured if compared.proposed]
            gains = [figures[PROPOSED] - figures[BEST] for figures in proposals]
            n_worse = sum(gain < 0 for gain in gains)
            mean_gain = float(np.mean(gains)) if gains else None
            n_better = sum(figures[WEIGHTED] > figures[BEST] for figures, _ in measured)
            proposal_rows.append([name, size, n_labels, n_draws, n_better, len(proposals), n_worse, mean_gain])
    return kappa_rows, proposal_rows


def agreement_row(name: str, verdicts: RecordedVerdicts) -> list[object]:
    """Agreement of all judges of a collection with people and with one another."""
    panel = np.full(len(verdicts.topic), np.nan)
    agreement = panel_agreement(
        LabelledVotes(verdicts.topic, verdicts.positive, np.ones(len(panel)), verdicts.votes, panel)
    )
    figures = (agreement.mean_with_people, agreement.mean_with_members, agreement.effective_members)
    formatted = [
        f"{figure.value:.{decimals}f} [{figure.low:.{decimals}f}, {figure.high:.{decimals}f}]"
        for figure, decimals in zip(figures, (2, 2, 1), strict=True)
    ]
    return [name, len(verdicts.judges), *formatted]


def main() -> None:
    """Measure, print and save."""
    arguments = options(__doc__, ("llm-judges", "trec-dl-2019")).parse_args()
    n_draws = QUICK_DRAWS if arguments.quick else DRAWS
    collections = {
        "llm-judges": (read_llm_judges(arguments.collections), SIZES),
        "trec-dl-2019": (read_trec_dl_2019(arguments.collections), (3, 5)),
    }
    kappa_rows, proposal_rows = [], []
    for name, (verdicts, sizes) in collections.items():
        kappas, proposals = measured_rows(name, verdicts, sizes, n_draws)
        kappa_rows += kappas
        proposal_rows += proposals
    keys = {"collection": "", "members": "", "labels": ""}
    tables = [
        ResultTable(
            "Agreement of the judges",
            {"collection": "", "judges": "", "kappa with people": "", "with one another": "", "effective number": ""},
            [agreement_row(name, verdicts) for name, (verdicts, _) in collections.items()],
            "Means over the judges with 95 % bootstrap intervals over topics; effective number of independent judges.",
        ),
        ResultTable(
            "Kappa on held-out topics",
            keys | dict.fromkeys(METHODS, ".3f"),
            kappa_rows,
            f"Mean of {n_draws} draws.",
        ),
        ResultTable(
            "Proposals",
            keys | {"draws": "", "weighted better": "", "proposed": "", "of these worse": "", "mean gain": "+.3f"},
            proposal_rows,
            "Better and worse: than the best member, on the other half of the topics.",
        ),
    ]
    publish("panels", tables, quick=arguments.quick)


if __name__ == "__main__":
    main()
