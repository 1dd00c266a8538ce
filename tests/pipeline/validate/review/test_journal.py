import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from darklode.pipeline.base.artifacts import Store
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.validate.review.journal import AnswerJournal, ReviewAnswer, current_answers
from helpers.runs import PYTHONPATH

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
YES = ReviewAnswer("acme", "q1", "a#1", "Ann", 1, NOON, rationale="it <answers> »this«")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "run"))


def test_answers_come_back_as_they_were_given(store: Store) -> None:
    given = [YES, replace(YES, relevance=None, rationale=None), replace(YES, reviewer="Böb", judge_shown=True)]
    for answer in given:
        AnswerJournal(store).append(answer)
    assert AnswerJournal(store).read() == given


def test_the_last_answer_stands(store: Store) -> None:
    journal = AnswerJournal(store)
    for answer in [YES, replace(YES, chunk_id="a#0"), replace(YES, relevance=0), replace(YES, reviewer="Ben")]:
        journal.append(answer)
    rows = current_answers(journal.read()).to_pylist()
    assert [(row["chunk_id"], row["reviewer"], row["relevance"]) for row in rows] == [
        ("a#0", "Ann", 1),
        ("a#1", "Ann", 0),
        ("a#1", "Ben", 1),
    ]


def test_an_answer_taken_back_is_none_until_there_is_another() -> None:
    undone = replace(YES, undone=True)
    assert current_answers([YES, undone]).num_rows == 0
    assert current_answers([YES, undone, replace(YES, relevance=0)])["relevance"].to_pylist() == [0]


def test_many_writers_lose_nothing(store: Store) -> None:
    journals = [AnswerJournal(store), AnswerJournal(store)]
    given = [replace(YES, chunk_id=f"a#{number}", reviewer=f"r{number % 2}") for number in range(200)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda answer: journals[int(answer.reviewer[1])].append(answer), given))
    assert current_answers(AnswerJournal(store).read()).num_rows == 200


def test_what_was_confirmed_survives_a_kill(store: Store) -> None:
    program = """
import sys, dataclasses
from test_journal import YES
from darklode.pipeline.base.artifacts import Store
from darklode.pipeline.validate.review.journal import AnswerJournal
journal = AnswerJournal(Store(sys.argv[1]))
for number in range(10_000):
    journal.append(dataclasses.replace(YES, chunk_id=f"a#{number}"))
    print(number, flush=True)
"""
    writer = subprocess.Popen(
        [sys.executable, "-c", program, store.url],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([PYTHONPATH, str(Path(__file__).parent)])},
    )
    assert writer.stdout is not None
    confirmed = [int(writer.stdout.readline()) for _ in range(40)]
    writer.send_signal(signal.SIGKILL)
    confirmed += [int(line) for line in writer.communicate()[0].split()]
    kept = {answer.chunk_id for answer in AnswerJournal(store).read()}
    assert {f"a#{number}" for number in confirmed} <= kept


def test_a_damaged_file_is_named(store: Store) -> None:
    AnswerJournal(store).append(YES)
    store.write("review/answers/1.json", b'{"tenant": "acme"')
    with pytest.raises(ArtifactError, match=r"answers/1\.json is not a valid answer"):
        AnswerJournal(store).read()


def test_a_run_without_answers_has_none(store: Store) -> None:
    assert AnswerJournal(store).read() == []
    assert current_answers([]).num_rows == 0


def test_answers_after_a_restart_come_last_though_the_clock_was_set_back(store: Store) -> None:
    AnswerJournal(store).append(YES)
    name = next(iter(store.sizes("review/answers")))
    later = f"{10**19:020d}{name[-38:]}"
    store.write(f"review/answers/{later}", store.read(name) or b"")
    journal = AnswerJournal(store)
    journal.read()
    journal.append(replace(YES, relevance=0))
    assert current_answers(journal.read())["relevance"].to_pylist() == [0]
