"""Inputs that are not what they seem, and whether a wrong number of theirs is used without a word.

::

    python benchmarks/faults/silent_numbers.py --folders 2000 --texts 2000     # prints JSON; exit code 1 if any was

Results folders are the stored studies with lines that are swapped, repeated, flipped, reordered, dropped, doubled, or
come from another study. Texts are the output of nccl-tests with rows that are cut, interrupted, of 0 bytes or of
another operation; tables of curves as spreadsheets write them; profiles with a number replaced; and folders of images
with files that are no samples. The truth behind each is known. A mutant is

- ``silent``: a number that is not the truth's is used, and nothing names its place;
- ``set_aside``: the numbers are the truth's without what was named;
- ``used``: the numbers are the truth's, whole;
- ``refused``: an error, or a prediction that is refused;
- ``doubted``: right lines were set aside too.
"""

import argparse
import contextlib
import io
import json
import math
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from steptime.cli.app import run_program
from steptime.curves.curve import EvidenceError
from steptime.curves.table import read_own_curves
from steptime.datasets.image_folder import scan
from steptime.errors import DatasetError, UsageError
from steptime.fitting.nccl_output import parse_nccl_tests

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "stored"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "corpus"))
from fuzz import generated
from mutations import MUTATIONS, Line, files, line_of, mutated, numbers, read, write
from stored_studies import STUDIES, unpacked

_ROUNDING = 0.01
"""Between a time and what a table prints of it."""
_HALF = 0.5
NUMBERS = (0, -1, 1e-320, 1e308, -1e308, float("nan"), float("inf"), 10**400, "1", None, True)


class Tally:
    """What mutants came to, and an example of each silent one's kind."""

    def __init__(self) -> None:
        self.ends: dict[str, Counter[str]] = {}
        self.silent: dict[str, str] = {}

    def add(self, kind: str, end: str, example: str = "") -> None:
        """Count one mutant."""
        self.ends.setdefault(kind, Counter())[end] += 1
        if end == "silent":
            self.silent.setdefault(kind, example[:2000])


OTHERS: list[Path] = []
"""The whole folders."""


def foreign(draw: Callable[..., Any], folder: Path) -> set[Line]:
    """Append a record of another trial, of this or another study, to a file."""
    path = draw(st.sampled_from([each for each in files(folder) if each.name == "records.jsonl"]))
    others = [each for whole in OTHERS for each in files(whole) if each.parent.name != path.parent.name]
    lines = read(path)
    write(path, [*lines, draw(st.sampled_from(read(draw(st.sampled_from(others)))))])
    return {line_of(folder, path, len(lines))}


def folder_mutants(tally: Tally, count: int, start: int, whole: dict[str, Path], target: Path) -> None:
    """Mutate results folders, as often for each kind of mutation."""
    kinds = (*MUTATIONS, foreign)
    for kind in kinds:

        @generated(-(-count // len(kinds)), start)
        @given(data=st.data())
        def feed(kind: Callable[..., set[Line]], data: st.DataObject) -> None:
            shutil.rmtree(target, ignore_errors=True)
            folder = whole[data.draw(st.sampled_from(STUDIES))]
            mutant, without, touched = mutated(folder, kind, data.draw, target)
            found, named = numbers(mutant)
            right = found == numbers(without)[0]
            end = "set_aside" if right and touched else "used" if right else "silent"
            if not right and named > touched:
                end = "doubted"
            tally.add(f"folder {kind.__name__}", end, f"{folder.name}: touched {touched}, named {named}")

        feed(kind)


def drawn(name: str) -> Random:
    """Return the random numbers of one mutant."""
    return Random(name)  # noqa: S311 - made-up inputs need no cryptography


def nccl_rows(random: Random) -> list[tuple[int, float]]:
    """Return bytes and microseconds of all-reduces over a link of any latency and rate."""
    latency, rate = 10 ** random.uniform(0, 2.5), 10 ** random.uniform(9, 11.5)
    return [(size, latency + size / rate * 1e6) for size in (2**power for power in range(3, 31, 3))]


def nccl_row(size: int, time_us: float, operation: str = "sum", wrong: str = "0") -> str:
    """Return one row as nccl-tests prints it."""
    shown = f"{time_us:.2f}" if time_us < 1000 else f"{time_us:.1f}" if time_us < 10000 else f"{time_us:.0f}"
    rate = size / float(shown) / 1e3 if size else 0.0
    half = f"{shown:>8} {rate:7.2f} {rate * 1.75:7.2f} {wrong:>6}"
    return f"{size:12} {size // 4:13} {'float':>9} {operation:>7} {'-1':>7} {half} {half}"


def nccl_mutants(tally: Tally, count: int, start: int) -> None:
    """Mutate tables of nccl-tests; a row that is kept must have its own time."""
    for number in range(count):
        random = drawn(f"nccl {start} {number}")
        truth = dict(nccl_rows(random))
        ranks = [
            f"#  Rank {rank:2} Group  0 Pid {rank + 9} on node device {rank} [0x07] NVIDIA A100" for rank in range(8)
        ]
        lines = ["# nThread 1 nGpus 1 minBytes 8 maxBytes 4G", "# Using devices", *ranks]
        lines += [nccl_row(size, time_us) for size, time_us in truth.items()]
        kind = random.choice(
            ("zero rows", "cut", "interrupted", "wrong", "another run", "doubled", "prefix", "shuffled")
        )
        first, at = len(ranks) + 2, random.randrange(len(ranks) + 3, len(lines))
        if kind == "zero rows":
            lines[at:at] = [nccl_row(0, random.uniform(1, 99))] * random.randint(1, 5)
        elif kind == "cut":
            lines[at] = lines[at][: random.randrange(20, len(lines[at]))]
        elif kind == "interrupted":
            place = random.randrange(20, len(lines[at]))
            lines[at] = f"{lines[at][:place]}node:12:34 [0] NCCL INFO Channel 00/02{lines[at][place:]}"
        elif kind == "wrong":
            lines[at] = nccl_row(2**20, random.uniform(1, 9), wrong=str(random.randint(1, 99)))
        elif kind == "another run":
            other = [nccl_row(size, time_us * random.uniform(2, 9), "none") for size, time_us in truth.items()]
            lines += ["# Collective test starting: all_gather_perf", "# nThread 1 nGpus 1", *ranks, *other]
        elif kind == "doubled":
            lines[at:at] = [lines[at]]
        elif kind == "prefix":
            lines = [f"[1,{random.randrange(8)}]<stdout>: {line}" for line in lines]
        else:
            rows = lines[first:]
            random.shuffle(rows)
            lines[first:] = rows
        text = "\n".join(lines) + "\n"
        try:
            tables = parse_nccl_tests(text, "out.txt")
        except UsageError:
            tally.add(f"nccl {kind}", "refused")
            continue
        rows_ = [row for table in tables for row in table.rows]
        off = [
            row for row in rows_ if not math.isclose(row.seconds * 1e6, truth.get(row.size, -1.0), rel_tol=_ROUNDING)
        ]
        hosts = {(table.ranks, table.hosts) for table in tables}
        end = "silent" if off or hosts != {(8, 1)} else "used" if len(rows_) >= len(truth) else "set_aside"
        tally.add(f"nccl {kind}", end, f"{off}\n{text}")


def written(random: Random, value: float, decimal: str, thousands: str) -> str:
    """Return a number as a spreadsheet writes it."""
    text = f"{value:,.{random.randint(4, 6)}f}"
    return text.replace(",", "T").replace(".", decimal).replace("T", thousands)


def curve_mutants(tally: Tally, count: int, start: int) -> None:
    """Write scaling curves in the forms of spreadsheets and data frames; a step time must come back as it was."""
    for number in range(count):
        random = drawn(f"curve {start} {number}")
        workers = [1, 2, 4, 8, 16][: random.randint(2, 5)]
        truth = {count_: 10 ** random.uniform(-3, 3.5) * (1 + count_ / 50) for count_ in workers}
        delimiter = random.choice((",", ";", "\t"))
        decimal = random.choice((".", ",")) if delimiter != "," else "."
        thousands = random.choice(("", "", "'", "." if decimal == "," else ","))
        quote = '"' if thousands == delimiter else random.choice(("", '"'))
        rows = [["workers", "step_time_s"]]
        rows += [
            [str(count_), quote + written(random, time_s, decimal, thousands) + quote]
            for count_, time_s in truth.items()
        ]
        kind = random.choice(("plain", "index", "blank rows", "comments", "capitals", "columns swapped", "mark"))
        if kind == "index":
            rows = [[head if place else "", *row] for place, row in enumerate(rows) for head in [str(place - 1)]]
        elif kind == "columns swapped":
            rows = [row[::-1] for row in rows]
        elif kind == "capitals":
            rows[0] = [name.upper() for name in rows[0]]
        lines = [delimiter.join(row) for row in rows]
        if kind == "blank rows":
            lines[2:2] = ["", delimiter]
        elif kind == "comments":
            lines[:0] = ["# measured yesterday"]
        text = ("\ufeff" if kind == "mark" else "") + "\n".join(lines) + "\n"
        path = Path("points.csv")
        path.write_text(text)
        try:
            (curve,) = read_own_curves(path)
        except EvidenceError:
            tally.add(f"curve {kind}", "refused")
            continue
        found = {point.workers: point.step_time for point in curve.fit}
        right = found.keys() == truth.keys() and all(
            math.isclose(found[count_], truth[count_], rel_tol=_ROUNDING, abs_tol=1e-4) for count_ in truth
        )
        tally.add(f"curve {kind}", "used" if right else "silent", f"{found} for {truth}\n{text}")


STRANGERS = ("format", "deeper", "dangling", "litter", "broken", "outside", "text", "pipe")


def add_stranger(kind: str, place: Path, name: str, random: Random) -> None:
    """Put a file that is no sample into a folder of a class."""
    if kind in {"format", "outside"}:
        ending = random.choice((".webp", ".bmp", ".gif", ".tiff")) if kind == "format" else ".png"
        Image.new("L", (9, 9)).save(place / (name + ending))
    elif kind == "deeper":
        (place / "below").mkdir(exist_ok=True)
        Image.new("L", (9, 9)).save(place / "below" / f"{name}.png")
    elif kind == "dangling":
        (place / f"{name}.png").symlink_to("nowhere")
    elif kind == "pipe":
        os.mkfifo(place / f"{name}.png")
    else:
        stranger = {"litter": f"._{name}.png", "broken": f"{name}.png", "text": f"{name}.txt"}[kind]
        (place / stranger).write_bytes(b"no picture")


def image_mutants(tally: Tally, count: int, start: int) -> None:
    """Put files that are no samples into folders of images; every file must be used or counted by its reason."""
    for number in range(count):
        random = drawn(f"images {start} {number}")
        folder = Path(f"images-{number}")
        top = folder / "train" if random.random() < _HALF else folder
        classes = [top / name for name in "abcd"[: random.randint(2, 4)]]
        truth = {each: random.randint(1, 4) for each in classes}
        for place, amount in truth.items():
            place.mkdir(parents=True)
            for index in range(amount):
                Image.new("L", (9, 9), random.randrange(256)).save(place / f"{index}.png")
        kind, extra, place = random.choice(STRANGERS), random.randint(1, 5), random.choice(classes)
        for index in range(extra):
            add_stranger(kind, top if kind == "outside" else place, f"x{index}", random)
        try:
            found = scan(f"./{folder}", folder.absolute(), Path("cache"), skip_broken=random.random() < _HALF)
        except DatasetError as error:
            named = folder.name in str(error)
            tally.add(f"images {kind}", "refused" if named else "silent", str(error))
            continue
        contents = found.contents
        counted = sum(each.count for each in contents.left_out)
        right = (contents.samples, contents.classes) == (sum(truth.values()), len(classes)) and counted == extra
        tally.add(f"images {kind}", "set_aside" if right else "silent", f"{contents} for {truth} and {extra} {kind}")


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401 - JSON
    """Yield the path of every number below ``value``, of a list of draws the first."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from places(each, (*path, key))
    elif isinstance(value, list):
        for place, each in enumerate(value[:2]):
            yield from places(each, (*path, place))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path


def is_sane(prediction: str) -> bool:
    """Return whether all numbers of a prediction in JSON are finite, its times positive, its intervals ordered."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    def check(value: Any) -> bool:  # noqa: ANN401 - JSON
        if isinstance(value, dict):
            ends = [value.get(key) for key in ("low", "value", "high")]
            known = [end for end in ends if isinstance(end, (int, float))]
            return known == sorted(known) and all(map(check, value.values()))
        return (
            all(map(check, value)) if isinstance(value, list) else not isinstance(value, float) or math.isfinite(value)
        )

    try:
        found = json.loads(prediction, parse_constant=refuse)
    except ValueError:
        return False
    steps = [each["step_time_s"]["value"] for each in _objects(found) if isinstance(each.get("step_time_s"), dict)]
    return check(found) and all(step is None or step > 0 for step in steps)


def _objects(value: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _objects(each)


def profile_mutants(tally: Tally, count: int, start: int, profile: dict[str, Any]) -> None:
    """Replace one number of a profile; a prediction must be refused or finite, positive and ordered."""
    everywhere = list(places(profile))
    for number in range(count):
        random = drawn(f"profile {start} {number}")
        *above, last = random.choice(everywhere)
        mutant = json.loads(json.dumps(profile))
        holder = mutant
        for key in above:
            holder = holder[key]
        value = random.choice((*NUMBERS, holder[last] * -1, holder[last] * 1e6, holder[last] * 1e-6))
        holder[last] = value
        Path("mutant.json").write_text(json.dumps(mutant))
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            try:
                code = run_program(["predict", "mutant.json", "--workers", "1,2,4,16", "--json"])
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
                tally.add("profile", "traceback", repr(error))
                continue
        end = "refused" if code not in {0, 3} else "used" if is_sane(out.getvalue()) else "silent"
        tally.add("profile", end, f"{[*above, last]} = {value}: {out.getvalue()[:500]}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what mutants came to, as JSON; return 1 where a wrong number was used silently."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folders", type=int, default=2000, help="mutants of results folders")
    parser.add_argument("--texts", type=int, default=2000, help="mutants of texts, profiles and image folders")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    tally, each = Tally(), -(-chosen.texts // 4)
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        whole = {study: unpacked(study, Path(name) / study) for study in STUDIES}
        OTHERS[:] = whole.values()
        nccl_mutants(tally, each, chosen.seed)
        curve_mutants(tally, each, chosen.seed)
        image_mutants(tally, each, chosen.seed)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            run_program(["fit", str(whole["four-frameworks"]), "-o", "profile.json"])
        profile = json.loads(Path("profile.json").read_text())
        profile_mutants(tally, each, chosen.seed, profile)
        if chosen.folders:
            folder_mutants(tally, chosen.folders, chosen.seed, whole, Path(name) / "mutants")
    total: Counter[str] = Counter()
    for ends in tally.ends.values():
        total += ends
    found = {"mutants": total.total(), "ends": total, "by_kind": tally.ends, "silent": tally.silent}
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return int(bool(tally.silent))


if __name__ == "__main__":
    sys.exit(main())
