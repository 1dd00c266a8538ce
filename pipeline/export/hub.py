"""Push a dataset to the Hugging Face Hub: a run by its own card, or a folder of an export format that has a card."""

import re
import sys
from pathlib import Path

import yaml

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ExportError, MissingPart

HUB_URL = re.compile(r"hf://(?:datasets/)?((?!datasets/)[\w.-]+/[\w.-]+)/?")
CARD = "README.md"


def dataset_id(url: str) -> str:
    """The `organization/name` of `hf://organization/name` or `hf://datasets/organization/name`.

    Raises:
        ExportError: it is no such address.
    """
    match = HUB_URL.fullmatch(url)
    if match is None:
        raise ExportError(f"{url} is no dataset of the Hub; expected hf://ORGANIZATION/NAME")
    return match[1]


def copy_dataset(run: Run, folder: Path) -> None:
    """Copy a run's card, and the tables that its configs name, to a folder.

    Args:
        run: a finished run.
        folder: an empty folder.

    Raises:
        ExportError: the run has no card, the card has no configs, or a file of a table is missing.
    """
    card = (run.store.read(CARD) or b"").decode()
    patterns = [file["path"] for config in _configs(card) for file in config["data_files"]]
    if not patterns:
        raise ExportError(f"{run.store.url} has no dataset card with configs; run its command to completion")
    tables = {pattern.split("/")[1] for pattern in patterns}
    parts = run.parts()
    for file in dict.fromkeys(part.file for table in sorted(tables) for part in parts[table]):  # merged parts share one
        path, content = folder / file, run.store.read(file)
        if content is None:
            raise ExportError(f"{run.store.url}/{file} is missing; run the command again")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (folder / CARD).write_text(card, encoding="utf-8")


def push(folder: Path, url: str, *, public: bool = False) -> str:
    """Upload a folder as a dataset, in one commit; files of an earlier push in the same subfolders are replaced.

    Address and token of the Hub are those of the environment: HF_ENDPOINT, and HF_TOKEN or a stored login.

    Args:
        folder: a folder with a card.
        url: `hf://organization/name`; created if it does not exist.
        public: whether a dataset that is created is public, and whether an existing public one may be pushed to.

    Returns:
        The dataset's web address.

    Raises:
        MissingPart: huggingface_hub is not installed.
        ExportError: the folder has no card, the dataset is public without `public`, or the Hub refuses.
    """
    name = dataset_id(url)
    if not (folder / CARD).exists():
        raise ExportError("this format has no dataset card; omit --format to push the run, or choose mteb or another")
    try:
        import httpx
        from huggingface_hub import HfApi
        from huggingface_hub.utils.tqdm import disable_progress_bars
    except ImportError as error:
        raise MissingPart("--push needs huggingface_hub: pip install huggingface_hub") from error
    if not sys.stderr.isatty():
        disable_progress_bars()
    api = HfApi(library_name="darklode")
    try:
        created = api.create_repo(name, repo_type="dataset", private=not public, exist_ok=True)
        if not public and not api.dataset_info(name).private:
            raise ExportError(f"{name} is public on the Hub; push with --public, or choose another name")
        subfolders = [f"{path.name}/*" for path in sorted(folder.iterdir()) if path.is_dir()]
        api.upload_folder(
            repo_id=name,
            repo_type="dataset",
            folder_path=folder,
            delete_patterns=subfolders,
            commit_message="Push a dataset of Darklode",
        )
    except (httpx.HTTPError, OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ExportError(f"cannot push to {name}: {reason}; check HF_TOKEN and the name") from error
    return str(created)


def _configs(card: str) -> list[dict[str, list[dict[str, str]]]]:
    """The configs in a card's front matter."""
    match = re.match(r"---\n(.*?)^---\n", card, re.MULTILINE | re.DOTALL)
    front = yaml.safe_load(match[1]) if match else {}
    return list(front.get("configs", []))
