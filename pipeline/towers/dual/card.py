"""The card of two towers: training data, results, and how to use them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.base.card import cell, changed_settings, document, name_of, software, with_front_matter
from darklode.pipeline.towers.dual import TOWERS_FOLDER
from darklode.pipeline.towers.dual.folder import SCORES_SQL, sentence
from darklode.pipeline.towers.dual.stage import DualInputs
from darklode.pipeline.towers.dual.triplets import TRIPLETS_STAGE
from darklode.pipeline.train.release.card import licence
from darklode.pipeline.train.release.folder import recorded_difference
from darklode.schemas.settings import Settings

USAGE_NOTE = """\
```python
from sentence_transformers import SentenceTransformer

towers = SentenceTransformer("{folder}", truncate_dim={least})   # or any of {nested}
queries = towers.encode_query(["a query"])
documents = towers.encode_document(["its title\\nits topic, where it has one\\nits text"])
```
Plain `encode` takes documents. Compare with cosine, because a truncated vector is not of unit length. These vectors
differ from those in training by at most {off:.1e} in any dimension."""

CAVEATS = """\
A decoder reads its prompt from its tokenizer; an encoder uses three poolings instead, which differs from ScalingNote.
The figures are not the paper's. The labels are those of the runs: a text without a judgment or click counts as not
relevant. Both towers changed, so documents must be encoded again: the index of the initial encoder cannot be used."""

TRIALS_SQL = "SELECT learning_rate, temperature, step, validation FROM dual_trials ORDER BY trial"
TRAINING_LOG_SQL = "SELECT trial, step, contrastive, margin, validation FROM dual_log ORDER BY trial, step"


def card(run: Run, settings: Settings, inputs: DualInputs, sources: list[str]) -> bytes:
    """Write the model card of the towers in Markdown.

    Args:
        run: a run with complete stages and the saved folder.
        settings: the settings that the run used.
        inputs: the initial encoder.
        sources: the training runs, as given.
    """
    tables = run.tables()
    dimensions = settings.dual.matryoshka_dims
    manifest = run.manifest(TRIPLETS_STAGE)
    facts = manifest.facts if manifest else {}
    counts = ", ".join(f"{value:,} {name}" for name, value in facts.items())
    head = [
        f"# {cell(name_of(run, settings))}",
        f"Two towers trained together on three views of documents (after ScalingNote, 3.2): {cell(sentence(tables))}.",
        f"Both were initialized from `{cell(inputs.encoder.encoder_id())}`; {settings.dual.method}, "
        f"{dimensions[-1]} dimensions.",
        f"Trained on {', '.join(f'`{cell(source)}`' for source in sources)}: {counts}.",
    ]
    usage = USAGE_NOTE.format(
        folder=TOWERS_FOLDER, least=dimensions[0], nested=list(dimensions), off=recorded_difference(run, TOWERS_FOLDER)
    )
    sections = [
        *("## Limits", CAVEATS),
        *("## How to use it", usage),
        *("## Settings that differ from the defaults", changed_settings(settings)),
        *("## Software", software(run), "## Licence", f"Of the model: `{cell(licence(inputs.encoder))}`."),
    ]
    front_matter = {"library_name": "sentence-transformers", "license": licence(inputs.encoder)}
    return with_front_matter(document(head, _tables(tables), sections), front_matter, {}).encode()


def _tables(tables: Tables) -> Iterator[tuple[str, pa.Table, str]]:
    note = "`beginning` is the initial encoder; `low` and `high` are a 95 % interval of the difference."
    yield "Scores", tables.sql(SCORES_SQL), note
    yield "Trials", tables.sql(TRIALS_SQL), "`validation` is the mean reciprocal rank on a sample of texts."
    yield (
        "Training history",
        tables.sql(TRAINING_LOG_SQL),
        "`contrastive` and `margin` are sums over views and Matryoshka dimensions.",
    )
