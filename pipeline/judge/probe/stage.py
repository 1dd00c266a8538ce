"""The stage `judge_probe`: the judge's replies to altered pairs.

Its replies go to its own tables only; verdicts, labels and triplets are made by stages that do not read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.errors import ArtifactError, DarklodeError, StageUnfinished
from darklode.pipeline.judge.calibration import calibrated_judge
from darklode.pipeline.judge.factory import Judges, answering_kinds, members
from darklode.pipeline.judge.port import Judge
from darklode.pipeline.judge.probe.kinds import NOT_READ, ORDER_OF_EXAMPLES, OTHER_TENANT_CHUNK, PROBE_KINDS
from darklode.pipeline.judge.probe.rates import probe_rates
from darklode.pipeline.judge.probe.sample import Probe, draw_probes, pairs_of
from darklode.pipeline.judge.session import JudgingSession, judge_facts
from darklode.schemas.probe_tables import JUDGE_PROBE, JUDGE_PROBES

PROBE_STAGE = Stage("judge_probe", 2, ("queries", "chunks", "pool", "verdicts"), (JUDGE_PROBE.name, JUDGE_PROBES.name))

NO_PAIRS = {
    OTHER_TENANT_CHUNK: "the run has one tenant",
    "stuffed query": "every drawn chunk is in the query's pool",
}
NO_LABELLED_PAIRS = "no verdict of the run has the label that this kind needs"

JudgeFor = Callable[[TenantChunks], Judge]


def no_new_texts(judges: Judges) -> str | None:
    """Why a judge cannot be probed; None if it can."""
    kinds = sorted({kind.kind for kind in answering_kinds(judges.settings) if not kind.JUDGES_NEW_TEXTS})
    return f"judge.kind {', '.join(kinds)} cannot judge texts that the run does not have" if kinds else None


def probe_judge(tables: Tables, output: Output, judges: Judges, *, probe_pairs: int, seed: int) -> None:
    """Judge altered pairs of the run with the run's judge, and write the rates of wrong replies.

    Args:
        tables: must contain `queries`, `chunks`, `pool` and `verdicts`, and what the judge reads.
        output: receives `judge_probe` and `judge_probes`; its facts count the calls.
        judges: judges from the settings.
        probe_pairs: maximum number of probes per kind.
        seed: random seed of the pairs.

    Raises:
        StageUnfinished: the judge failed, or reached a limit; rates of kinds with missing replies are null.
    """
    judge_for = calibrated_judge(tables, judges)
    reversed_judges = _reversed(judges)
    reversed_judge_for = calibrated_judge(tables, reversed_judges) if reversed_judges else None
    drawn = draw_probes(tables, [*PROBE_KINDS], probe_pairs, seed)
    if reversed_judge_for is None:
        drawn[ORDER_OF_EXAMPLES] = []
    probing = Probing(tables, output, judge_for, reversed_judge_for)
    rows, judge_ids = probing.judge(drawn)
    outcomes = {kind: [row["outcome"] for row in rows if row["kind"] == kind] for kind in PROBE_KINDS}
    unanswered = {kind: len(probes) - len(outcomes[kind]) for kind, probes in drawn.items()}
    n_read, n_unanswered = sum(row["outcome"] != NOT_READ for row in rows), sum(unanswered.values())
    n_dropped = {"unreadable": len(rows) - n_read, "no reply": n_unanswered}
    dropped = {reason: count for reason, count in n_dropped.items() if count}
    output.count(FunnelStep("judge_probe", "probes", len(rows) + n_unanswered, "probes", n_read, dropped))
    skipped = {kind: _reason(kind, reversed_judges is None) for kind, probes in drawn.items() if not probes}
    output.write(JUDGE_PROBES.name, pa.Table.from_pylist(rows, schema=JUDGE_PROBES.schema))
    output.write(JUDGE_PROBE.name, probe_rates(outcomes, unanswered, skipped, judge_ids))
    if probing.failure:
        kinds = ", ".join(kind for kind in PROBE_KINDS if unanswered[kind])
        raise StageUnfinished(
            f"{str(probing.failure).rstrip('.')}. The labels are complete, but {n_unanswered:,} of "
            f"{len(rows) + n_unanswered:,} probes of the judge have no reply, so these rates are unknown: {kinds}. "
            f"To continue, run `darklode judge probe {tables.url}`, or the same command again"
        ) from probing.failure


def _reversed(judges: Judges) -> Judges | None:
    """The judge with its few-shot examples in reverse order; None if it has fewer than two, or is a panel."""
    if judges.settings.panel:
        return None
    settings: Any = members(judges.settings)[0].with_reversed_examples()
    return None if settings is None else replace(judges, settings=settings)


def _reason(kind: str, has_no_examples: bool) -> str:
    if kind == ORDER_OF_EXAMPLES and has_no_examples:
        return "the judge has no prompt with two examples, or is a panel"
    return NO_PAIRS.get(kind, NO_LABELLED_PAIRS)


class Probing:
    """Judges the unchanged and the altered texts of probes.

    Args:
        tables: must contain `chunks`, and what the judge reads.
        output: receives progress and counts of calls.
        judge_for: builds a tenant's judge.
        reversed_judge_for: the same with its examples in reverse order; None if it has none.

    Attributes:
        failure: why judging stopped; None if all probes were judged.
    """

    def __init__(
        self, tables: Tables, output: Output, judge_for: JudgeFor, reversed_judge_for: JudgeFor | None
    ) -> None:
        self._tables, self._output = tables, output
        self._judge_for, self._reversed_judge_for = judge_for, reversed_judge_for
        self._judges: list[Judge] = []
        self.failure: DarklodeError | None = None

    def judge(self, drawn: Mapping[str, Sequence[Probe]]) -> tuple[list[dict[str, Any]], dict[str, list[str]]]:
        """Rows of `judge_probes` by kind, tenant and query, and the ids of each kind's judges.

        Stops at the first failure of a judge: a limit, or a server that does not answer.

        Args:
            drawn: probes by kind.
        """
        tenant_names = sorted({probe.tenant for probes in drawn.values() for probe in probes})
        rows: list[dict[str, Any]] = []
        judge_ids: dict[str, list[str]] = {kind: [] for kind in drawn}
        total = 2 * sum(map(len, drawn.values()))
        try:
            with JudgingSession(self._output, total, progress_count="probes") as session:
                for tenant in tenant_names:
                    chunks = TenantChunks(self._tables, tenant)
                    for kind, judge_id, kind_rows in self._judge_tenant(session, chunks, drawn):
                        rows += kind_rows
                        judge_ids[kind] = sorted({*judge_ids[kind], judge_id})
        except ArtifactError:  # a folder cannot be read or written: nor could these tables
            raise
        except DarklodeError as error:
            self.failure = error
        self._output.facts |= judge_facts(self._judges)
        order = [*PROBE_KINDS]
        return sorted(rows, key=lambda row: (order.index(row["kind"]), row["tenant"], row["query_id"])), judge_ids

    def _judge_tenant(
        self, session: JudgingSession, chunks: TenantChunks, drawn: Mapping[str, Sequence[Probe]]
    ) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
        """Kind, id of the judge of the altered pairs, and rows of `judge_probes`, of each kind that the tenant has."""
        judge = self._registered(self._judge_for(chunks))
        for kind, probes in drawn.items():
            own = [probe for probe in probes if probe.tenant == chunks.tenant]
            if not own:
                continue
            altering = judge
            if kind == ORDER_OF_EXAMPLES and self._reversed_judge_for:
                altering = self._registered(self._reversed_judge_for(chunks))
            yield kind, altering.judge_id, _judge_kind(session, judge, altering, own)
            session.counts["probes"] += 2 * len(own)
            session.report(judge)

    def _registered(self, judge: Judge) -> Judge:
        """The judge, counted in the facts once its id is known: finding it out may fail."""
        judge.judge_id  # noqa: B018
        self._judges.append(judge)
        return judge


def _judge_kind(
    session: JudgingSession, judge: Judge, altering: Judge, probes: Sequence[Probe]
) -> list[dict[str, Any]]:
    """Rows of `judge_probes` of one kind and tenant; unchanged pairs are judged by `judge`, altered by `altering`."""
    ordered = sorted(probes, key=lambda probe: (probe.query_id, probe.chunk_id))  # as judges expect their pairs
    unchanged = session.replies(judge, pairs_of(probe.unchanged_row() for probe in ordered)).to_pylist()
    altered = session.replies(altering, pairs_of(probe.altered_row() for probe in ordered)).to_pylist()
    return [_row(probe, *replies) for probe, *replies in zip(ordered, unchanged, altered, strict=True)]


def _row(probe: Probe, unchanged: Mapping[str, Any], altered: Mapping[str, Any]) -> dict[str, Any]:
    texts = probe.altered
    # No text of one tenant is written under another tenant's name.
    is_own = probe.chunk_tenant == probe.tenant
    return {
        "kind": probe.kind,
        "variant": probe.variant,
        "tenant": probe.tenant,
        "query_id": probe.query_id,
        "chunk_id": probe.chunk_id,
        "query": texts.query,
        "title": texts.title if is_own else None,
        "heading": texts.heading if is_own else None,
        "text": texts.text if is_own else None,
        "unchanged_relevant": unchanged["relevant"],
        "unchanged_probability": unchanged["probability"],
        "relevant": altered["relevant"],
        "probability": altered["probability"],
        "outcome": PROBE_KINDS[probe.kind].outcome(unchanged["relevant"], altered["relevant"]),
        "raw_reply": altered["raw_reply"] if is_own else None,
        "error": altered["error"],
    }
