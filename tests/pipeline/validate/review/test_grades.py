import shutil
from pathlib import Path

from darklode.pipeline.validate.review.grades import BINARY, scale_of
from darklode.schemas.judging import JudgeSettings
from darklode.schemas.settings import Settings

PROMPTS = Path(__file__).parents[4] / "prompts" / "judge"


def judge(prompt: str) -> JudgeSettings:
    given = {"kind": "llm", "model": "m", "base_url": "http://127.0.0.1:1/v1", "prompt": prompt}
    return Settings.model_validate({"judge": given}).judge


def test_a_judge_without_grades_asks_for_relevant_or_not() -> None:
    assert scale_of(JudgeSettings()) == scale_of(judge("binary")) == BINARY
    assert [BINARY.grade_name(grade) for grade in (1, 0, None)] == ["relevant", "not relevant", "skipped"]


def test_a_graded_prompt_gives_its_grades_and_their_names() -> None:
    scale = scale_of(judge("graded"))
    assert list(scale.names) == [3, 2, 0]  # 1, "near, but no answer", is not relevant
    assert (scale.grade_name(3), scale.grade_name(0)) == ("3: made for this query", "not relevant")
    assert scale.is_graded


def test_a_panel_has_the_grades_that_its_graded_judges_share(tmp_path: Path) -> None:
    def panel_of(*prompts: str) -> JudgeSettings:
        return judge(prompts[0]).model_copy(update={"panel": tuple(judge(prompt) for prompt in prompts[1:])})

    other = shutil.copytree(PROMPTS / "graded", tmp_path / "from_one")
    text = (other / "prompt.yaml").read_text().replace("relevant_from: 2", "relevant_from: 1")
    (other / "prompt.yaml").write_text(text)
    assert scale_of(panel_of("graded", "graded")) == scale_of(judge("graded"))
    assert scale_of(panel_of("binary", "graded")) == scale_of(judge("graded"))
    assert scale_of(panel_of("binary", "binary")) == BINARY
    assert scale_of(panel_of("graded", str(other))) == BINARY, "grade 1 is relevant to one judge only"


def test_a_prompt_that_is_gone_gives_none(tmp_path: Path) -> None:
    assert scale_of(judge(str(tmp_path / "gone"))) == BINARY
