"""How well a study is to be measured: launches, steps, anatomy, the gate."""

from steptime.study.quantities import Count, Duration, Strict


class Launches(Strict):
    """How often a trial is launched in fresh processes."""

    min: Count = 3
    """At least so often, unless the budget ends before."""
    max: Count = 10
    """At most so often, even if the target is not reached."""


class Anatomy(Strict):
    """Launches that say where the time of a step goes, apart from those that time it."""

    launches: Count = 3
    """Of each trial, in fresh processes."""
    seconds: Duration = 6.0
    """Time aimed for in each."""


class Steps(Strict):
    """How many training steps a launch runs."""

    warmup: Count = 5
    """Steps that are run first and never counted."""
    min: Count = 10
    """Timed steps at least, however long they take."""
    max: Count = 2000
    """Timed steps at most, however short they are."""


class Gate(Strict):
    """The equivalence gate: do all frameworks train the same thing?"""

    enabled: bool = True
    """False ranks frameworks that nobody compared; the report says so."""
    steps: Count = 5
    """Training steps that are compared with the reference."""
    repeats: Count = 3
    """Runs of each synchronous strategy; faults may be intermittent."""
