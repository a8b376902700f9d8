"""The phases of a step, one row each; all else that lists phases derives from this table.

What a phase means is in docs/breakdown.md. A new phase is a row here, and the code that measures or models it: an
ablation stage or a mark (``analysis/ablation``), a formula (``fitting/step_model.py``), or both.
"""

from dataclasses import dataclass

_DARK, _LIGHT = "#1b1f24", "white"


@dataclass(frozen=True, kw_only=True)
class StepPhase:
    """One phase, as records, reports, traces and predictions name it."""

    name: str
    """In records, JSON and profiles."""
    title: str
    """In reports."""
    short_title: str
    """Of a narrow column."""
    part: str
    """Of a step, in a sentence about what limits it; phases with the same part are added up. Empty for the rest."""
    colour: str
    """On the page; colours stay apart for every common kind of colour vision."""
    ink: str = _DARK
    """Of letters on this colour."""
    parameter: str = ""
    """The parameter of the performance model for how well the phase is known; empty where none does."""
    mark: str = ""
    """The mark of a framework that ends this phase and no other; empty where none does."""
    overlaps: bool = True
    """Whether communication may go on meanwhile; where it does not, a mark measures the phase as ablation does."""
    place: int
    """Its place in time within a step, which is not the order of this table."""


PHASES = (
    StepPhase(
        name="input_wait",
        title="input wait",
        short_title="input",
        part="waiting for input",
        colour="#E69F00",
        parameter="input_share",
        mark="input",
        overlaps=False,
        place=0,
    ),
    StepPhase(
        name="h2d",
        title="to device",
        short_title="h2d",
        part="copying to the device",
        colour="#8C6D31",
        ink=_LIGHT,
        mark="h2d",
        overlaps=False,
        place=1,
    ),
    StepPhase(
        name="forward",
        title="forward",
        short_title="forward",
        part="computing",
        colour="#56B4E9",
        parameter="forward_per_sample_s",
        mark="forward",
        place=2,
    ),
    StepPhase(
        name="backward",
        title="backward",
        short_title="backward",
        part="computing",
        colour="#0072B2",
        ink=_LIGHT,
        parameter="backward_per_sample_s",
        mark="backward",
        place=3,
    ),
    StepPhase(
        name="comm_exposed",
        title="exposed comm.",
        short_title="exposed",
        part="exposed communication",
        colour="#D55E00",
        ink=_LIGHT,
        parameter="overlap_efficiency",
        place=5,
    ),
    StepPhase(
        name="sync_wait",
        title="sync wait",
        short_title="waiting",
        part="waiting for slower workers",
        colour="#CC79A7",
        parameter="persistent",
        place=4,
    ),
    StepPhase(
        name="update",
        title="update",
        short_title="update",
        part="the update",
        colour="#009E73",
        ink=_LIGHT,
        parameter="update_s",
        mark="update",
        overlaps=False,
        place=6,
    ),
    StepPhase(
        name="residual",
        title="rest",
        short_title="residual",
        part="",
        colour="#B8BFC7",
        parameter="timing",
        place=7,
    ),
)
"""What sums to the step, in the order in which it is shown."""
REST = PHASES[-1].name
"""What the other phases leave of the step."""
HIDDEN = StepPhase(
    name="comm_hidden",
    title="hidden comm.",
    short_title="(hidden)",
    part="",
    colour="#F4B183",
    parameter="overlap_efficiency",
    place=3,
)
"""Communication that overlaps with computing, not part of the sum."""

BY_NAME = {phase.name: phase for phase in PHASES}
NAMES = tuple(BY_NAME)
IN_TIME = tuple(phase.name for phase in sorted(PHASES, key=lambda phase: phase.place))
"""Names in the order in which a step passes through them."""
OF_MARK = {phase.mark: phase.name for phase in PHASES if phase.mark}
"""The phase that a framework's mark ends."""
EXCHANGED = ("comm_exposed", "sync_wait")
"""The phases that the mark ``exchange`` ends together; arrivals of workers tell them apart."""
MARKS = tuple(BY_NAME[name].mark or "exchange" for name in IN_TIME if BY_NAME[name].mark or name == EXCHANGED[0])
"""The marks that a framework may set in a step, in the order in which it passes them (worker/session.py)."""
