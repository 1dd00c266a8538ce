"""The sample for review: a stage of its own, which `darklode review` and `darklode validate` both bring up to date."""

from dataclasses import replace

from flows.build_benchmark import plain
from flows.steps import Step
from pipeline.artifacts import Run
from pipeline.review_sample import REVIEW_SAMPLE_STAGE, review_sample
from schemas.settings import Settings


def sample_step(settings: Settings) -> Step:
    """The stage that draws it."""
    review, seed = settings.review, settings.seed
    adaptive = settings.judge.depth == "adaptive"
    stage = REVIEW_SAMPLE_STAGE
    return Step(
        replace(stage, reads=(*stage.reads, "unjudged")) if adaptive else stage,
        plain(review, leave="show_judge") | {"seed": seed},
        lambda tables, output: review_sample(tables, output, review, seed=seed),
    )


def draw_sample(run: Run, settings: Settings) -> None:
    """Draw the sample of a run unless it stands, without a flow around it.

    Raises:
        ArtifactError: the run has no verdicts yet, or another process is writing to it.
    """
    step = sample_step(settings)
    with run.lock():
        plan = step.plan(run)
        if not plan.stands:
            run.execute(plan, step.work)
