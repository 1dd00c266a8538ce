"""What docs/reference/json.md promises of the commands' answers."""

import re

from helpers.runs import REPOSITORY

PAGE = (REPOSITORY / "docs" / "reference" / "json.md").read_text(encoding="utf-8")


def promised(command: str) -> set[str]:
    """The keys that the page names for a command."""
    (row,) = re.findall(rf"^\| `darklode {command}\b[^|]*\| (.*) \|$", PAGE, re.M)
    return set(re.findall(r"`([a-z_]+)…?`", re.sub(r"\[`[a-z_]+`\]\([^)]*\)", "", row)))
