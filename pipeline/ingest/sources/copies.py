"""Files of object stores and of the Hugging Face hub, copied to a snapshot; only changed ones are copied again."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from darklode.pipeline.base.artifacts import Store
from darklode.pipeline.base.errors import DarklodeError, InputError, MissingPart
from darklode.pipeline.ingest.files import FORMATS, TABULAR_FORMATS, InputFile, files_fingerprint, list_files
from darklode.pipeline.ingest.patterns import split_pattern
from darklode.pipeline.ingest.sources.snapshot import NEW_FOLDER, Snapshot

_HUB_ADDRESS = re.compile(r"hf://datasets/(?P<name>[^/@]+/[^/@]+)(?:@(?P<revision>[^/]+))?(?:/(?P<path>.+))?", re.I)


@dataclass(frozen=True)
class HubFiles:
    """Files of a data set on the Hugging Face hub.

    Attributes:
        name: organization and name.
        commit: the commit that the revision points to.
        names: names of the files to read.
    """

    name: str
    commit: str
    names: list[str]


def list_copied(address: str) -> list[InputFile] | HubFiles:
    """The files at an address; nothing is copied.

    Raises:
        DarklodeError: they cannot be listed, or there are none.
    """
    if address.lower().startswith("hf:"):
        return _list_hub(address)
    files = list_files(address, remote=True)
    if not files:
        raise InputError(f"{address} contains no files; give an object or a prefix with objects")
    return files


def copy_files(address: str, snapshot: Snapshot) -> int | None:
    """Copy the files at an address to a snapshot; returns their number, None if the snapshot is up to date.

    Raises:
        DarklodeError: a file cannot be listed or read.
        OSError: there is no space.
    """
    source = list_copied(address)
    version = source.commit if isinstance(source, HubFiles) else files_fingerprint(source)
    state = snapshot.state
    if state.is_complete and state.version == version:
        return None
    state.is_complete = False
    snapshot.save()
    names = source.names if isinstance(source, HubFiles) else [file.name for file in source]
    try:
        if isinstance(source, HubFiles):
            for name in names:
                _download(address, source, name, snapshot.folder)
        else:
            store = Store(_root(address))
            for file in source:
                _copy_object(store, file, snapshot)
        _delete_others(snapshot.folder, set(names))
        state.files = {name: state.files[name] for name in names if name in state.files}
        state.is_complete, state.version = True, version
    finally:
        snapshot.save()
    return len(names)


def _root(address: str) -> str:
    split = split_pattern(address)
    return split[0] if split else address


def _copy_object(store: Store, file: InputFile, snapshot: Snapshot) -> None:
    """Copy an object unless its copy has the same version."""
    target, version = snapshot.folder / file.name, files_fingerprint([file])
    if target.is_file() and snapshot.state.files.get(file.name) == version:
        return
    new = snapshot.folder / NEW_FOLDER / "object"
    new.parent.mkdir(exist_ok=True)
    try:
        with store.filesystem.open_input_stream(str(file.path), compression=None) as stream, new.open("wb") as copy:
            shutil.copyfileobj(stream, copy, 1 << 20)
    except OSError as error:
        raise InputError(f"{store.url}: {file.name} cannot be copied ({error}); check the bucket and AWS_*") from error
    target.parent.mkdir(parents=True, exist_ok=True)
    new.replace(target)
    snapshot.state.files[file.name] = version


def _delete_others(folder: Path, names: Collection[str]) -> None:
    """Delete copies of files that are no longer there; hidden ones are not copies."""
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in names and not name.startswith("."):
            path.unlink()


def _list_hub(address: str) -> HubFiles:
    """The tabular files of a data set, or those at the path or pattern in its address.

    Raises:
        InputError: the address is invalid, or there are no such files.
        MissingPart: huggingface_hub is not installed.
        DarklodeError: the hub does not answer, or refuses.
    """
    match = _HUB_ADDRESS.fullmatch(address)
    if match is None:
        raise InputError(
            f"{address}: a data set of the hub is hf://datasets/ORGANIZATION/NAME, with @REVISION or /PATH"
        )
    info = _call_hub(address, "dataset_info", match["name"], revision=match["revision"])
    names = sorted(sibling.rfilename for sibling in info.siblings or ())
    if path := match["path"]:
        pattern = split_pattern(path)
        if pattern and pattern[0] != ".":
            chosen = [name for name in names if pattern[1].fullmatch(name.removeprefix(f"{pattern[0]}/"))]
        elif pattern:
            chosen = [name for name in names if pattern[1].fullmatch(name)]
        else:
            chosen = [name for name in names if name == path or name.startswith(f"{path.rstrip('/')}/")]
    else:
        chosen = [name for name in names if "/." not in f"/{name}" and _format(name) in TABULAR_FORMATS]
    if not chosen:
        raise InputError(f"{address} has no such files; it has {', '.join(names[:10]) or 'none'}")
    return HubFiles(match["name"], str(info.sha), chosen)


def _format(name: str) -> str | None:
    return FORMATS.get(Path(name.lower().removesuffix(".gz")).suffix)


def _download(address: str, source: HubFiles, name: str, folder: Path) -> None:
    """Download a file; an interrupted download continues, and a file that the hub has not changed stays."""
    options = {"repo_type": "dataset", "revision": source.commit, "local_dir": folder}
    _call_hub(address, "hf_hub_download", source.name, name, **options)


def _call_hub(address: str, method: str, *arguments: str, **options: Any) -> Any:
    """Call the hub's client; the token comes from HF_TOKEN or `hf auth login`, the hub from HF_ENDPOINT.

    Raises:
        MissingPart: huggingface_hub is not installed.
        DarklodeError: the call failed.
    """
    if find_spec("huggingface_hub") is None:
        raise MissingPart("hf:// needs the hub's client: pip install huggingface_hub")
    import httpx
    from huggingface_hub import HfApi

    try:
        return getattr(HfApi(endpoint=os.environ.get("HF_ENDPOINT")), method)(*arguments, **options)
    except (httpx.HTTPError, OSError, ValueError) as error:  # names that the hub refuses are ValueErrors
        reason = " ".join(str(error).split())[:300]
        raise DarklodeError(f"{address}: {reason}; check name and revision, HF_TOKEN for a private data set") from None
