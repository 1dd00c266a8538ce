from darklode.pipeline.base.headings import Heading, find_headings


def test_headings_have_place_level_and_text() -> None:
    text = "intro\n # First #\n##Not one\n### Third\t##\n#\n# #\n"
    assert list(find_headings(text)) == [Heading(7, 16, 1, "First"), Heading(27, 39, 3, "Third")]
    assert text[7:16] == "# First #"


def test_fenced_code_has_no_headings() -> None:
    text = "````sh\n# comment\n```\n# comment\n````x\n# comment\n`````\n# After\n~~~\n# open to the end\n"
    assert [heading.text for heading in find_headings(text)] == ["After"]
