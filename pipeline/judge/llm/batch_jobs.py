"""Judge a run at a hosted batch service: each request is submitted once, and results survive crashes.

Every submitted file has a record beside the ledger until its results are fetched:

ROOT/batches/<hash of the token>/batch.json    what was submitted where, and the service's id once known
                                /NAME.keys     the pairs, 16 bytes each
"""

from __future__ import annotations

import json
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.errors import MissingPart
from darklode.pipeline.base.memory.keys import KeyIndex, from_bytes, to_bytes
from darklode.pipeline.base.memory.parts import PartFiles
from darklode.pipeline.base.remote.batch_service import BatchNotFound, BatchService, BatchState
from darklode.pipeline.base.remote.budget import NO_USAGE, Budget, SpendingLedger, Usage
from darklode.pipeline.base.types import Keys
from darklode.pipeline.judge.ledger import VERDICT_ROWS, Ledger
from darklode.pipeline.judge.llm.batch_files import CustomId, batch_files, read_batch
from darklode.pipeline.judge.llm.response_formats import RequestTemplate

_CLOCK_TOLERANCE_SECONDS = 3600.0
"""Seconds by which the service's clock may be behind ours. A batch is searched among those created since the
submission, minus this tolerance: one missed because of a clock would be submitted, and paid for, twice."""


@dataclass(frozen=True)
class Submitted:
    """A file of requests that was submitted, or was about to be.

    Attributes:
        token: stored with the batch at the service, to find it again.
        judge_id: id of the judge.
        run: run that the pairs belong to.
        where: service that got the file.
        calls: number of requests.
        prompt_tokens, completion_tokens: upper estimates of the tokens of all requests.
        began: time of the submission, Unix time in seconds.
        id: the batch's id at the service; None while it is unknown whether the service created it.
        account: account that spending is booked to; empty: none.
        cost: estimated cost.
    """

    token: str
    judge_id: str
    run: str
    where: str
    calls: int
    prompt_tokens: int
    completion_tokens: int
    began: float
    id: str | None = None
    account: str = ""
    cost: float = 0.0


class BatchJournal:
    """Records of submitted files with results not yet fetched, of all judges and runs.

    Args:
        root: folder of the cache; None: the user's cache folder.
    """

    def __init__(self, root: str | None) -> None:
        self._root = root
        self._parts = PartFiles(root, "batches", "batch", (".keys",))

    def all(self) -> list[Submitted]:
        """List all submitted files, oldest first."""
        submissions = (Submitted(record.pop("batch_id"), **record) for record in self._parts.records())
        return sorted(submissions, key=lambda submission: submission.began)

    def for_judge(self, judge_id: str) -> list[Submitted]:
        """List a judge's submitted files, oldest first."""
        return [submission for submission in self.all() if submission.judge_id == judge_id]

    def pairs(self, judge_id: str) -> KeyIndex:
        """Collect the keys of the pairs in a judge's files, which must not be submitted again."""
        index = KeyIndex()
        for submission in self.for_judge(judge_id):
            for name in self._parts.names(submission.token):
                key_bytes = np.frombuffer(self._parts.store.read(name) or b"", np.uint8)
                index.add(from_bytes(key_bytes.reshape(-1, 16)))
        return index

    def note(self, submission: Submitted, keys: Keys | None = None) -> None:
        """Write or replace a file's record; with `keys`, also the keys of its pairs."""
        record = asdict(submission)
        self._parts.register(record.pop("token"), **record)
        if keys is not None:
            self._parts.write(submission.token, to_bytes(keys.reshape(-1)))

    def find(self, name: str) -> Submitted:
        """Find the file with this batch id or token.

        Raises:
            MissingPart: there is none.
        """
        submissions = self.all()
        matching = next((submission for submission in submissions if name in {submission.id, submission.token}), None)
        if matching is None:
            other_names = ", ".join(submission.id or submission.token for submission in submissions) or "none"
            raise MissingPart(
                f"no batch {name} is submitted (submitted: {other_names}); for another cache, set cache.root"
            )
        return matching

    def forget(self, submission: Submitted) -> None:
        """Delete a file's record, so that its pairs can be submitted again."""
        self._parts.prune(submission.token)

    def write_off(self, submission: Submitted) -> None:
        """Forget a file whose results are lost, and book its estimated cost, since it was paid for."""
        if submission.account:
            usage = Usage(submission.prompt_tokens, submission.completion_tokens)
            SpendingLedger(self._root, submission.account).add(usage, submission.cost)
        self.forget(submission)


class HostedJudge:
    """Submits a judge's requests to a batch service, and fetches the results.

    Args:
        template: the judge.
        ledger: receives the verdicts.
        journal: records of submitted files.
        service: the batch service.
        budget: prices and limits of the judge.
    """

    def __init__(
        self, template: RequestTemplate, ledger: Ledger, journal: BatchJournal, service: BatchService, budget: Budget
    ) -> None:
        self._template = template
        self._ledger = ledger
        self._journal = journal
        self._service = service
        self._budget = budget

    def submit(self, blocks: Iterable[pa.Table], run: str) -> Iterator[Submitted]:
        """Submit requests file by file; yields each submitted file.

        Args:
            blocks: tables with the columns of `PAIRS`, no pair of which was submitted before.
            run: run that the pairs belong to; no other process may submit pairs of it meanwhile.

        Raises:
            DarklodeError: the service refuses, or a limit could be exceeded; earlier files stay submitted.
        """
        self._budget.sync_ledger()
        for submission in self._journal.for_judge(self._template.judge_id):
            self._budget.reserve(Usage(submission.prompt_tokens, submission.completion_tokens))
        with tempfile.TemporaryDirectory(prefix="darklode-batch-") as scratch:
            for file, calls in batch_files(blocks, self._template, Path(scratch) / "calls.jsonl"):
                keys, estimate = _read_requests(file, self._template)
                self._budget.reserve(estimate)
                judge_id, where = self._template.judge_id, self._service.where
                submission = Submitted(uuid.uuid4().hex, judge_id, run, where, calls, *estimate, began=time.time())
                submission = replace(submission, account=self._budget.account, cost=self._budget.cost(estimate))
                # The record is written first: after a crash, `settle` asks the service whether it got the file.
                self._journal.note(submission, keys)
                submission = replace(submission, id=self._service.start(file, submission.token))
                self._journal.note(submission)
                file.unlink()
                yield submission

    def settle(self, run: str) -> None:
        """Resolve files without a batch id: forget those that the service never got.

        Args:
            run: run whose files are resolved; no other process may submit pairs of it meanwhile.
        """
        for submission in self._own_submissions():
            if self._with_id(submission).id is None and submission.run == run:
                self._journal.forget(submission)

    def look(self) -> Iterator[tuple[Submitted, BatchState | None]]:
        """Yield all files at this service with the state of their batch; None if it is unknown whether there is a
        batch.

        Raises:
            DarklodeError: the service does not answer; or, after all others, a batch no longer exists.
        """
        missing_errors = list[MissingPart]()
        yield from self._states(missing_errors)
        if missing_errors:
            raise missing_errors[0]

    def fetch(self) -> Iterator[tuple[Submitted, BatchState | None, Counter[str]]]:
        """Store the results of finished batches; their pairs without a result can be submitted again.

        Yields:
            Each file, its state (see `look`), and the counts of `read_batch`.

        Raises:
            DarklodeError: the service does not answer, or results cannot be stored; or, after all others, a batch or
                its results no longer exist. Call again to continue.
        """
        missing_errors = list[MissingPart]()
        for submission, state in self._states(missing_errors):
            counts = Counter[str]()
            if state and state.is_finished:
                try:
                    counts = self._store_replies(state)
                except BatchNotFound as error:  # store the other batches' results first
                    missing_errors.append(_lost_batch_error(submission, error))
                    continue
                self._journal.forget(submission)
            yield submission, state, counts
        if missing_errors:
            raise missing_errors[0]

    def _states(self, gone: list[MissingPart]) -> Iterator[tuple[Submitted, BatchState | None]]:
        """Yield existing files with their state; append the errors of missing batches to `gone`."""
        for submission in map(self._with_id, self._own_submissions()):
            try:
                state = self._service.status(submission.id) if submission.id else None
            except BatchNotFound as error:
                gone.append(_lost_batch_error(submission, error))
            else:
                yield submission, state

    def _store_replies(self, state: BatchState) -> Counter[str]:
        """Download a finished batch's files and write their verdicts to the ledger; returns `read_batch`'s counts."""
        counts = Counter[str]()
        with tempfile.TemporaryDirectory(prefix="darklode-batch-") as scratch:
            for number, file_id in enumerate(state.files):
                with self._service.download(file_id, Path(scratch) / f"{number}.jsonl").open("rb") as lines:
                    counts += read_batch(lines, self._template, self._ledger, self._spend)
        self._budget.sync_ledger()
        return counts

    def _spend(self, used: Usage) -> None:
        self._budget.settle(NO_USAGE, used)

    def _own_submissions(self) -> list[Submitted]:
        """List this judge's files at this service."""
        return [
            submission
            for submission in self._journal.for_judge(self._template.judge_id)
            if submission.where == self._service.where
        ]

    def _with_id(self, submission: Submitted) -> Submitted:
        """Add the batch id to a record without one, if the service has a batch with its token."""
        if submission.id is not None:
            return submission
        batch = self._service.find(submission.token, submission.began - _CLOCK_TOLERANCE_SECONDS)
        if batch is None:
            return submission
        identified = replace(submission, id=batch.id)
        self._journal.note(identified)
        return identified


def _lost_batch_error(submission: Submitted, error: BatchNotFound) -> MissingPart:
    """Build the error for a batch that the service no longer has."""
    name = submission.id or submission.token
    return MissingPart(
        f"{name}: {error}. If its results are lost, `darklode judge batch forget {name}` allows its "
        f"{submission.calls:,} requests to be submitted, and paid for, again"
    )


def _read_requests(file: Path, template: RequestTemplate) -> tuple[Keys, Usage]:
    """Read the keys of the pairs of a file of requests, and an upper estimate of its tokens."""
    custom_ids = list[CustomId]()
    prompt_tokens = completion_tokens = 0
    with file.open("rb") as lines:
        for call in map(json.loads, lines):
            custom_id = CustomId.parse(call["custom_id"])
            assert custom_id
            custom_ids.append(custom_id)
            max_usage = template.estimate(call["body"]["messages"][-1]["content"])
            prompt_tokens += max_usage.prompt
            completion_tokens += max_usage.completion
    pairs = pa.table({side: [getattr(custom_id, side) for custom_id in custom_ids] for side in VERDICT_ROWS.key})
    return VERDICT_ROWS.keys(pairs), Usage(prompt_tokens, completion_tokens)
