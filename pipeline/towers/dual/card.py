"""The card of two towers: training data, results, and how to use them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.base.card import cell, changed_settings, document, name_of, software, with_front_matter
from darklode.pipeline.towers.dual import FOLDER
from darklode.pipeline.towers.dual.folder import REACHED, sentence
from darklode.pipeline.towers.dual.stage import DualInputs
from darklode.pipeline.towers.dual.triplets import TRIPLETS
from darklode.pipeline.train.release.card import licence
from darklode.pipeline.train.release.folder import recorded_difference
from darklode.schemas.settings import Settings

READING = """\
```python
from sentence_transformers import SentenceTransformer

towers = SentenceTransformer("{folder}", truncate_dim={least})   # or any of {nested}
queries = towers.encode_query(["a query"])
documents = towers.encode_document(["its title\\nits topic, where it has one\\nits text"])
```
Plain `encode` takes documents. Cosine compares them: a prefix has another length than the whole. These vectors differ
from those that training saw by {off:.1e} at most, in any number."""

CAVEATS = """\
A decoder is asked by the prompt that lies in its tokenizer; an encoder has three poolings in its place, the three-view
form, which is not ScalingNote's. The figures are not the paper's. The labels are those of the runs: a text that nobody
judged or clicked counts as not relevant. Both towers changed, so documents are to be encoded anew: an index of the
encoder that they began as is of no use to them."""

TRIALS = "SELECT learning_rate, temperature, step, validation FROM dual_trials ORDER BY trial"
COURSE = "SELECT trial, step, contrastive, margin, validation FROM dual_log ORDER BY trial, step"


def card(run: Run, settings: Settings, beginning: DualInputs, sources: list[str]) -> bytes:
    """The card in Markdown.

    Args:
        run: with complete stages and the saved folder.
        settings: in force.
        beginning: the initial encoder.
        sources: the training runs, as given.
    """
    tables, nested = run.tables(), settings.dual.matryoshka_dims
    manifest = run.manifest(TRIPLETS)
    facts = manifest.facts if manifest else {}
    counts = ", ".join(f"{value:,} {name}" for name, value in facts.items())
    head = [
        f"# {cell(name_of(run, settings))}",
        f"Two towers trained together on three views of documents (after ScalingNote, 3.2): {cell(sentence(tables))}.",
        f"Both began as `{cell(beginning.encoder.encoder_id())}`; {settings.dual.method}, {nested[-1]} numbers.",
        f"Learned from {', '.join(f'`{cell(source)}`' for source in sources)}: {counts}.",
    ]
    used = READING.format(folder=FOLDER, least=nested[0], nested=list(nested), off=recorded_difference(run, FOLDER))
    last = [
        *("## What it does not say", CAVEATS),
        *("## How to use it", used),
        *("## Settings that differ from the defaults", changed_settings(settings)),
        *("## Software", software(run), "## Licence", f"Of the model: `{cell(licence(beginning.encoder))}`."),
    ]
    front = {"library_name": "sentence-transformers", "license": licence(beginning.encoder)}
    return with_front_matter(document(head, _tables(tables), last), front, {}).encode()


def _tables(tables: Tables) -> Iterator[tuple[str, pa.Table, str]]:
    note = "`beginning` is the encoder that both began as; `low` and `high` are a 95 % interval of the difference."
    yield "What they reach", tables.sql(REACHED), note
    yield "What was tried", tables.sql(TRIALS), "`validation` is the mean reciprocal rank among some texts."
    yield "How it went", tables.sql(COURSE), "`contrastive` and `margin` are sums over views and nested dimensions."
