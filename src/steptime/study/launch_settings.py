"""Settings of launches in a study: how many, how many steps each, and which kinds there are beside those that time."""

from typing import Annotated

from pydantic import Field

from steptime.study.quantities import Count, Duration, Strict


class Launches(Strict):
    """How often a trial is launched, each time in processes of its own."""

    min: Count = 3
    """At least this often, within the budget."""
    max: Count = 10
    """At most this often."""
    forks: Annotated[int, Field(ge=0, le=1000)] = 1
    """Launches of a trial that are forked from one import; 0: fresh processes."""


class BreakdownChoice(Strict):
    """Launches that say where the time of a step goes, apart from those that time it."""

    launches: Count = 3
    """Of each trial."""
    seconds: Duration = 6.0
    """Time aimed for in each."""


class LoaderAloneChoice(Strict):
    """Launches that take batches from the loader and train on none, apart from those that time training."""

    launches: Count = 3
    """Of each trial that reads data."""
    seconds: Duration = 10.0
    """Time for the first epoch, at most, and for later ones."""


class Steps(Strict):
    """How many training steps a launch runs."""

    warmup: Count = 5
    """Steps that are never counted."""
    min: Count = 10
    """Timed steps at least."""
    max: Count = 2000
    """Timed steps at most."""


class EquivalenceSettings(Strict):
    """The equivalence check: do all frameworks train the same thing?"""

    enabled: bool = True
    """False ranks frameworks without comparing them; the report states it."""
    steps: Count = 19
    """Steps of a launch, at most, that are compared with the reference."""
    repeats: Count = 2
    """Launches of every kind, as faults may be intermittent."""
