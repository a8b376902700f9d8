"""A step as a list of times: the regions and gaps of its form in their order, and the line that they make."""

from __future__ import annotations

import json
from typing import Any

from .record_file import encoded

INPUT, FORWARD, BACKWARD, CLIP, UPDATE = "input", "forward", "backward", "clip", "update"
ENDS = {name: name + " ends" for name in (INPUT, FORWARD, BACKWARD, CLIP, UPDATE)}
INPUT_ENDS, FORWARD_ENDS, BACKWARD_ENDS, UPDATE_ENDS = ENDS[INPUT], ENDS[FORWARD], ENDS[BACKWARD], ENDS[UPDATE]
GRADIENTS = "gradients"  # behind the time of the last gradient is that of the end of its backward pass
# Keys of a step's line that one like it has with the same value, and those that each has anew.
SAME = ("kind", "micro_steps", "requests", "rows", "samples", "asked", "tokens", "optimizers")
OWN = frozenset({"number", "begin_ns", "duration_ns", "regions", "gaps", "backwards", "cost_ns"})


class StepForm:
    """The regions of a step in their order, and what else its line has."""

    def __init__(self, line: dict[str, Any]) -> None:
        self.constant = {key: line[key] for key in SAME if key in line}
        self.synchronised = [each[3] for each in line["backwards"]]
        clip = [CLIP] if CLIP in line["regions"] else []
        names = [*[INPUT, FORWARD, BACKWARD] * len(self.synchronised), *clip, UPDATE]
        self.regions: list[tuple[str, int, int]] = []  # with the places of its begin and end among the times
        self.codes: list[str] = []
        self.places: list[str] = []  # the region or gap in which each of the times is next
        self.owes: list[bool] = []  # whether there are gradients then that no update has used
        self.averages: list[bool | None] = []  # whether the backward pass that goes on then averages gradients
        before, owing = UPDATE, False
        for name in names:
            entries = [name, ENDS[name], *[GRADIENTS] * (name == BACKWARD)]
            self.regions.append((name, len(self.codes), len(self.codes) + len(entries) - 1))
            ahead = min(self.codes.count(BACKWARD), len(self.synchronised) - 1)
            self.codes += entries
            self.places += [f"{before}>{name}", *[name] * (len(entries) - 1)]
            self.owes += [owing] * len(entries)
            self.averages += [self.synchronised[ahead]] * len(entries)
            before, owing = name, owing or name == BACKWARD
        self.length = len(self.codes)
        self.gaps = [
            (f"{name}>{after}", end, begin)
            for (name, _, end), (after, begin, _) in zip(self.regions, [*self.regions[1:], (INPUT, self.length, 0)])
        ]
        self.codes += [INPUT, INPUT_ENDS, FORWARD]
        self.places += [f"{UPDATE}>{INPUT}", INPUT, f"{INPUT}>{FORWARD}"]
        self.owes += [False] * 3
        self.sums = [_named(self.regions), _named(self.gaps)]
        self.passes = [(begin, end) for name, begin, end in self.regions if name == BACKWARD]
        self.text = self._text()

    def _text(self) -> str:
        """Return the line of such a step with `%d` in place of its own numbers, in the order of ``UsualStep.numbers``.

        Filling that in takes a tenth of what encoding each line does.
        """
        regions, gaps = ("{" + ",".join(encoded(name) + ":%d" for name in sums) + "}" for sums in self.sums)
        passes = ",".join(f"[%d,%d,%d,{encoded(synchronised)}]" for synchronised in self.synchronised)
        constant = encoded(self.constant).replace("%", "%%")[:-1]
        own = '"number":%d,"begin_ns":%d,"duration_ns":%d'
        return f'{constant},{own},"regions":{regions},"gaps":{gaps},"backwards":[{passes}]}}'

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StepForm):
            return NotImplemented
        return (self.codes, self.synchronised, self.constant) == (other.codes, other.synchronised, other.constant)

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def of(cls, line: dict[str, Any]) -> StepForm | None:
        """Return the form of a step, or None of one that is not of a few regions in their usual order."""
        if not line.keys() <= OWN.union(SAME) or len(line.get("optimizers", ())) != 1 or not line.get("backwards"):
            return None
        passes = len(line["backwards"])
        if line["micro_steps"] != passes or line.get("requests", 1) != passes or (passes > 1 and "rows" in line):
            return None
        form = cls(line)
        complete = line["regions"].keys() == {name for name, _, _ in form.regions}
        return form if complete and line["gaps"].keys() == {name for name, _, _ in form.gaps} else None


class UsualStep:
    """A step of a form: its number and its times, behind which are those with which the next begins."""

    __slots__ = ("form", "number", "times")

    def __init__(self, form: StepForm, number: int, times: list[int]) -> None:
        self.form, self.number, self.times = form, number, times

    def text(self) -> str:
        """Return its line as JSON."""
        return self.form.text % tuple(self.numbers())

    def numbers(self) -> list[int]:
        """Return the numbers of its line that other steps of the form have anew, in the line's order."""
        form, times = self.form, self.times
        numbers = [self.number, times[0], times[form.length] - times[0]]
        for sums in form.sums:
            for entries in sums.values():
                duration = 0
                for begin, end in entries:
                    duration += times[end] - times[begin]
                numbers.append(duration)
        for begin, end in form.passes:
            numbers += times[begin], times[end - 1], times[end]
        return numbers

    def line(self) -> dict[str, Any]:
        """Return its line."""
        line: dict[str, Any] = json.loads(self.text())
        return line


def _named(spans: list[tuple[str, int, int]]) -> dict[str, list[tuple[int, int]]]:
    """Return the begins and ends of spans by their names."""
    named: dict[str, list[tuple[int, int]]] = {}
    for name, begin, end in spans:
        named.setdefault(name, []).append((begin, end))
    return named
