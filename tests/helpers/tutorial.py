"""The commands of docs/get-started/tutorial.md, in their order."""

import re
import shlex

from helpers.runs import REPOSITORY

PAGE = REPOSITORY / "docs" / "get-started" / "tutorial.md"


def commands() -> list[list[str]]:
    """Every line of the page's shell blocks, as words."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.strip()]
