"""A run whose triplets lie as an earlier version wrote them: folders Hive's way, columns left out of the files."""

from dataclasses import replace
from hashlib import sha256
from urllib.parse import quote

from darklode.pipeline.base.artifacts import Part, Run
from darklode.pipeline.base.artifacts.parquet_writer import encode
from darklode.pipeline.base.artifacts.stage import partition_of, partition_values
from darklode.pipeline.triplets.mined import MINED_TRIPLETS
from darklode.schemas.tables import TRIPLETS

FOLDERS = ("tenant", "date", "source", "split")


def to_old_layout(run: Run, *, wrong: dict[str, str]) -> None:
    """Write the triplets of a complete run in the old layout.

    Args:
        run: complete up to the triplets.
        wrong: folder values that are exchanged, such as one tenant for another: the fault of that version.
    """
    manifest = run.manifest(MINED_TRIPLETS)
    assert manifest is not None
    old = []
    rows = [(part, run.tables().part(part)) for part in manifest.outputs[TRIPLETS.name]]
    for part, of_part in rows:
        values = partition_values(partition_of(part.file))
        folder = "/".join(f"{name}={quote(wrong.get(values[name], values[name]), safe='')}" for name in FOLDERS)
        data = encode(of_part.drop_columns(FOLDERS))
        sha = sha256(data).hexdigest()
        file = f"tables/triplets/{folder}/mined_triplets-{len(old):05d}-{sha[:8]}.parquet"
        run.store.write(file, data)
        run.store.delete(part.file)
        old.append(Part(file, part.rows, len(data), sha, part.day))
    outputs = manifest.outputs | {TRIPLETS.name: old}
    run.store.write(
        "manifests/mined_triplets.json", replace(manifest, fingerprint="old", outputs=outputs, units={}).to_json()
    )
