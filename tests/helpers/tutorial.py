"""The commands of a page of the documentation, by default docs/get-started/tutorial.md, in their order."""

import re
import shlex
from pathlib import Path

from helpers.runs import REPOSITORY

PAGE = REPOSITORY / "docs" / "get-started" / "tutorial.md"


def commands(page: Path = PAGE, n_blocks: int | None = None) -> list[list[str]]:
    """Every line of the page's first shell blocks (None: of all) as words, without comments."""
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[:n_blocks]
    return [
        shlex.split(line, comments=True)
        for block in blocks
        for line in block.replace("\\\n", " ").splitlines()
        if line.strip()
    ]
