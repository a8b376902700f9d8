"""Mutations of stored studies: lines that are swapped, repeated or changed, and what of a folder is named and used."""

import copy
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from steptime.analysis.summary import summarise
from steptime.model.measured_links import stored_links
from steptime.results.store import Store

Line = tuple[str, int]
"""The file in the results folder and the number of the line."""


def files(folder: Path) -> list[Path]:
    return sorted([*folder.glob("trials/*/*.jsonl"), *folder.glob("net.jsonl")])


def read(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path: Path, lines: list[Any]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def numbers(folder: Path) -> tuple[Any, set[Line]]:
    """Return all that the report computes, and the lines that it names as not used."""
    store = Store.open(folder)
    summary, net = summarise(store), stored_links(store)
    found = summary.to_json()
    for trial in found["trials"]:
        trial["flags"] = [flag for flag in trial["flags"] if not flag.startswith("records set aside")]
        trial["reason"] = None
    aside = {(each.file, each.line) for each in store.set_aside}
    return ({**found, "problems": None, "set_aside": None}, net.to_json() if net else None), aside


def swapped(draw: Callable[..., Any], folder: Path) -> set[Line]:
    """Let two records of two trials change places."""
    kind = draw(st.sampled_from(sorted({path.name for path in files(folder) if path.name != "net.jsonl"})))
    paths = [path for path in files(folder) if path.name == kind]
    one, other = draw(st.permutations(paths))[:2]
    first, second = read(one), read(other)
    place, other_place = draw(st.integers(0, len(first) - 1)), draw(st.integers(0, len(second) - 1))
    first[place], second[other_place] = second[other_place], first[place]
    write(one, first)
    write(other, second)
    return {line_of(folder, one, place), line_of(folder, other, other_place)}


def repeated(draw: Callable[..., Any], folder: Path) -> set[Line]:
    """Write the lines of a file several times over."""
    path = draw(st.sampled_from(files(folder)))
    lines, times = read(path), draw(st.integers(2, 10))
    write(path, lines * times)
    return {line_of(folder, path, place) for place in range(len(lines), len(lines) * times)}


def changed(draw: Callable[..., Any], folder: Path, change: Callable[[Any], bool], kinds: str = "*") -> set[Line]:
    """Change one record; ``change`` says whether it could."""
    path = draw(st.sampled_from([each for each in files(folder) if each.match(kinds)]))
    lines = read(path)
    place = draw(st.integers(0, len(lines) - 1))
    if not change(lines[place]):
        return set()
    write(path, lines)
    return {line_of(folder, path, place)}


def dropped(draw: Callable[..., Any], folder: Path) -> set[Line]:
    """Take a worker out of a record."""
    return changed(draw, folder, lambda record: record["workers"].pop(draw(st.integers(0, len(record["workers"]) - 1))))


def doubled(draw: Callable[..., Any], folder: Path) -> set[Line]:
    """Put a worker into a record for the second time, beside or in the place of another."""

    def double(record: Any) -> bool:
        workers = record["workers"]
        again = copy.deepcopy(draw(st.sampled_from(workers)))
        if len(workers) > 1 and draw(st.booleans()):
            workers[:] = [again, copy.deepcopy(again)]
        else:
            workers.append(again)
        return True

    return changed(draw, folder, double)


def reordered(draw: Callable[..., Any], folder: Path) -> set[Line]:
    """Let two ends of steps change places."""

    def reorder(record: Any) -> bool:
        ends = draw(st.sampled_from(record["workers"]))["ends_s"]
        one, other = draw(st.permutations(range(len(ends))))[:2]
        ends[one], ends[other] = ends[other], ends[one]
        return ends[one] != ends[other]

    return changed(draw, folder, reorder, "records.jsonl")


def flipped(draw: Callable[..., Any], folder: Path) -> set[Line]:
    """Change one digit of the end of a step, by several steps at least."""

    def flip(record: Any) -> bool:
        worker = draw(st.sampled_from(record["workers"]))
        ends = worker["ends_s"]
        place = draw(st.integers(0, len(ends) - 1))
        digits = f"{ends[place]:015.6f}"
        at = draw(st.integers(0, digits.index(".") + 1).filter(lambda index: digits[index] != "."))
        new = float(digits[:at] + str((int(digits[at]) + draw(st.integers(1, 9))) % 10) + digits[at + 1 :])
        step = max(later - earlier for earlier, later in zip([worker["origin_s"], *ends], ends, strict=False))
        if math.fabs(new - ends[place]) < max(0.1, 2.0 * step):
            return False
        ends[place] = new
        return True

    return changed(draw, folder, flip, "records.jsonl")


def line_of(folder: Path, path: Path, place: int) -> Line:
    return str(path.relative_to(folder)), place + 1


MUTATIONS = (swapped, repeated, dropped, doubled, reordered, flipped)


def mutated(
    whole: Path, mutate: Callable[..., set[Line]], draw: Callable[..., Any], target: Path
) -> tuple[Path, Path, set[Line]]:
    """Return a mutant of a folder, the same without the lines that were touched, and those lines."""
    mutant, without = target / "mutant", target / "without"
    shutil.copytree(whole, mutant)
    touched = mutate(draw, mutant)
    shutil.copytree(mutant, without)
    for path in files(without):
        lines = read(path)
        write(path, [line for place, line in enumerate(lines) if line_of(without, path, place) not in touched])
    return mutant, without, touched
