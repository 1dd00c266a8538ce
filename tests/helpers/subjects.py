"""A source of one document and one query a subject: which document answers which query is plain."""

from pathlib import Path

SUBJECTS = "invoice webhook token refund export locale agent ticket survey macro queue article".split()


def write_subjects(folder: Path) -> Path:
    """Folder `docs` and file `queries.txt`."""
    (folder / "docs").mkdir()
    for subject in SUBJECTS:
        text = f"# {subject}\n\nTo rotate the {subject}, open its page. To delete the {subject}, ask an admin."
        (folder / "docs" / f"{subject}.md").write_text(text)
    (folder / "queries.txt").write_text("".join(f"how do I rotate the {subject}\n" for subject in SUBJECTS))
    return folder
