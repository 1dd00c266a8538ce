import shutil
from pathlib import Path

from darklode.pipeline.validate.review.grades import BINARY, scale_of
from darklode.schemas.settings import Settings

PROMPTS = Path(__file__).parents[4] / "prompts" / "judge"


def judge(prompt: str, **sections: object) -> Settings:
    given = {"kind": "llm", "model": "m", "base_url": "http://127.0.0.1:1/v1", "prompt": prompt}
    return Settings.model_validate({"judge": given, **sections})


def test_a_judge_without_grades_asks_for_relevant_or_not() -> None:
    assert scale_of(Settings()) == scale_of(judge("binary")) == BINARY
    assert [BINARY.grade_name(grade) for grade in (1, 0, None)] == ["relevant", "not relevant", "skipped"]


def test_a_graded_prompt_gives_its_grades_and_their_names() -> None:
    scale = scale_of(judge("graded"))
    assert list(scale.names) == [3, 2, 0]  # 1, "near, but no answer", is not relevant
    assert (scale.grade_name(3), scale.grade_name(0)) == ("3: made for this query", "not relevant")
    assert scale.is_graded


def test_a_panel_has_the_grades_that_its_graded_judges_share(tmp_path: Path) -> None:
    def panel_of(*prompts: str) -> Settings:
        first, *others = (judge(prompt).judge for prompt in prompts)
        return Settings().model_copy(update={"judge": first.model_copy(update={"panel": tuple(others)})})

    other = shutil.copytree(PROMPTS / "graded", tmp_path / "from_one")
    text = (other / "prompt.yaml").read_text().replace("relevant_from: 2", "relevant_from: 1")
    (other / "prompt.yaml").write_text(text)
    assert scale_of(panel_of("graded", "graded")) == scale_of(judge("graded"))
    assert scale_of(panel_of("binary", "graded")) == scale_of(judge("graded"))
    assert scale_of(panel_of("binary", "binary")) == BINARY
    assert scale_of(panel_of("graded", str(other))) == BINARY, "grade 1 is relevant to one judge only"


def test_a_prompt_that_is_gone_gives_none(tmp_path: Path) -> None:
    assert scale_of(judge(str(tmp_path / "gone"))) == BINARY


def test_binary_labels_have_a_binary_review() -> None:
    assert scale_of(judge("graded", labels={"binary": True})) == BINARY


def test_people_may_grade_for_a_judge_that_gives_no_grades() -> None:
    """So that grades can be fitted to its scores."""
    scale = scale_of(Settings(), max_grade=3)
    assert list(scale.names) == [3, 2, 1, 0]
    assert (scale.grade_name(2), scale.grade_name(0)) == ("2", "not relevant")
    assert list(scale_of(judge("graded"), max_grade=2).names) == [2, 1, 0]


def test_a_judge_with_fitted_grades_is_reviewed_on_them() -> None:
    assert list(scale_of(Settings(), fitted_grades={1, 3}).names) == [3, 1, 0]
    assert scale_of(judge("graded"), fitted_grades={1}) == scale_of(judge("graded"))
