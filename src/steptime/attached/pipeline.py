"""What is said of ranks that are stages of a pipeline: the bubble of its schedule, beside what was seen.

Of ``p`` stages of equal length and ``m`` micro-batches, each stage computes in ``m`` of the ``m + p - 1`` rounds of a
step and waits in the others: ``(p-1) / (m+p-1)`` of the step, as long by GPipe as by 1F1B (Y. Huang et al., *GPipe*,
NeurIPS 2019; D. Narayanan et al., *Efficient large-scale language model training on GPU clusters*, SC 2021). A rank
that has several parts of the network goes through as many backward passes for each micro-batch, and fills the same
rounds with shorter ones, so that backward passes of a rank in a step are what counts.

First and last stage send and receive less than those between them, and as much as each other: by that ranks are divided
into pipelines.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from steptime.attached.attempts import BETWEEN_TWO
from steptime.attached.form import AttachedFinding, StepPart
from steptime.attached.step_parts import KeptSteps
from steptime.attached.waiting import percent, with_interval
from steptime.results.attached_lines import StepLine
from steptime.units import format_count

_ENDS = 2
"""Stages of a pipeline that have one neighbour."""
_MORE = 4
"""Times the micro-batches, whose bubble is said beside that of those a script has."""


@dataclass(frozen=True)
class Pipeline:
    """The stages of a run, and the rounds of a step."""

    stages: int
    passes: int
    """Backward passes of a stage in a step."""

    def bubble(self, times: int = 1) -> float:
        """Return the share of a step in which a stage waits, with so many times the micro-batches."""
        return (self.stages - 1) / (times * self.passes + self.stages - 1)


def pipeline_of(kept: KeptSteps) -> Pipeline | None:
    """Return the pipeline that ranks are stages of; None if they are none, or their number does not show."""
    if not kept.attempt.is_pipeline(kept.numbers):
        return None
    steps = [kept.attempt.steps[number] for number in kept.numbers]
    passes = {step.micro_steps for own in steps for step in own}
    # In a first step, stages tell each other the shapes of what they will send.
    sent = np.median([[_count_between_two(step) for step in own] for own in steps], axis=0)
    pipelines, rest = divmod(int(np.isclose(sent, sent.min()).sum()), _ENDS)
    if len(passes) > 1 or not min(passes) or rest or len(sent) % pipelines:
        return None
    return Pipeline(len(sent) // pipelines, passes.pop())


def pipeline_findings(kept: KeptSteps, exchange: StepPart | None, steps: int) -> Iterator[AttachedFinding]:
    """Yield the bubble that the schedule of a pipeline leaves, and how long ranks were in their exchange.

    Args:
        kept: the steps.
        exchange: the part of a step; None if it is not known.
        steps: of the whole job.
    """
    pipeline = pipeline_of(kept)
    if pipeline is None or exchange is None:
        return
    rounds = format_count(pipeline.passes, "backward pass", "backward passes")
    many = format_count(_MORE * pipeline.passes, "pass", "passes")
    bubble, less = (percent(pipeline.bubble(times)) for times in (1, _MORE))
    sentence = (
        f"ranks are {pipeline.stages} stages of a pipeline, with {rounds} of each in a step: stages of equal length "
        f"would wait {bubble} of it (GPipe, 1F1B), and {less} with {many}; "
        f"seen were {with_interval(exchange.time_s)} in sends, receives and waits, {percent(exchange.share)}"
    )
    lost_s = (exchange.time_s.value or 0.0) * steps
    yield AttachedFinding(kind="pipeline", sentence=sentence, lost_s=lost_s)


def _count_between_two(step: StepLine) -> int:
    return sum(count for name, (count, _, _) in step.collectives.items() if name.rpartition(":")[2] in BETWEEN_TWO)
