"""Mutants of good inputs, fed to the program: ``python tests/corpus/fuzz.py --mutants 5000``.

Studies, records, profiles, tables of points and manifests are changed in a few places, by hypothesis, and given to a
verb within one process. A mutant fails by an exception that is not a message, an exit code that is not documented, more
than ten seconds of processor time, or more than 500 MB. Failures are printed with their mutants, one for each place.
"""

import argparse
import contextlib
import copy
import io
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bad_input import unpack
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from steptime.catalog.manifest import load_manifest
from steptime.cli.app import run_program

ROOT = Path(__file__).parents[2]
STORED = ROOT / "tests" / "data" / "stored" / "strong-scaling.tar.xz"
CODES = {0, 1, 2, 3, 130, 141}
CPU_LIMIT_S, WALL_LIMIT_S, MEMORY_LIMIT = 10, 120, 500 << 20

NASTY = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, -(10**30), 0.0, -0.0, 1e-320, 1e308, -1e308, 1.5, float("nan"),
    float("inf"), "", " ", "x", "0", "-1", "nan", "1e400", "../..", "/dev/zero", "\x00", "\x1b[31m", "[red]", "ü" * 9,
    "n" * 300, "{}", "*", "&a", "!!x", [], {}, [[]], [None], [1, 2], {"x": 1}, {"": None}, ["a"] * 50,
    [[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]],
]  # fmt: skip
"""Values that take the place of another."""
CHARACTERS = "\x00\t\n\r \"'#%&*,-.:;<=>?@[]{}\\|~0123456789aeinx_+é\x1b\ufeff"


class TooLongError(BaseException):
    """A mutant took too long; no ``except Exception`` shall swallow this."""


def nodes(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value below ``value``."""
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, each in below for found in ((*path, key), *nodes(each, (*path, key)))]


@st.composite
def changed(draw: st.DrawFn, document: Any) -> Any:
    """Draw a document with one to four values replaced, removed, repeated or renamed."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 4))):
        paths = nodes(document)
        if not paths:
            break
        *above, last = paths[draw(st.integers(0, len(paths) - 1))]
        holder = document
        for key in above:
            holder = holder[key]
        action = draw(st.sampled_from(("replace", "replace", "replace", "remove", "repeat", "rename", "scale")))
        if action == "replace":
            holder[last] = copy.deepcopy(draw(st.sampled_from(NASTY)))
        elif action == "remove":
            del holder[last]
        elif action == "repeat":
            holder[last] = [copy.deepcopy(holder[last]) for _ in range(draw(st.integers(2, 5)))]
        elif action == "rename" and isinstance(holder, dict):
            holder[str(last) + draw(st.sampled_from(["x", "", " ", "."]))] = holder.pop(last)
        elif isinstance(holder[last], (int, float)):
            holder[last] *= draw(st.sampled_from([-1, 0, 1000, 10**9, 0.001]))
    return document


@st.composite
def torn(draw: st.DrawFn, text: str) -> str:
    """Draw a text with one to five of its characters replaced, cut out or put in."""
    for _ in range(draw(st.integers(1, 5))):
        at, length = draw(st.integers(0, len(text))), draw(st.integers(0, 8))
        text = text[:at] + draw(st.text(CHARACTERS, max_size=4)) + text[at + length :]
    return text


class Subject:
    """One kind of input: how its mutants are drawn, and what the program does with one in the current folder."""

    def __init__(self, name: str, mutants: st.SearchStrategy[str], feed: Callable[[str, int], int]) -> None:
        self.name, self.mutants, self.feed = name, mutants, feed


def run_verb(*arguments: str) -> int:
    """Run the program with its output thrown away."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return run_program(arguments)


def as_yaml(document: Any) -> str:
    """Return a document as YAML."""
    stream = io.StringIO()
    YAML(typ="safe", pure=True).dump(document, stream)
    return stream.getvalue()


def unsigned(lines: list[str]) -> list[dict[str, Any]]:
    """Return the objects of lines without their checksums, so that changes reach what reads their keys."""
    found = [json.loads(line) for line in lines]
    return [{**{name: each[name] for name in each if name != "checksum"}, "schema": 1} for each in found]


def subjects(folder: Path) -> list[Subject]:
    """Return all kinds of input, with whole ones made in ``folder``."""
    unpack(STORED, folder / "whole")
    results = next((folder / "whole").rglob("study.json")).parent
    profile = folder / "profile.json"
    run_verb("fit", str(results), "-o", str(profile))
    studies = [path.read_text() for path in sorted((ROOT / "src" / "steptime" / "studies").glob("*.yaml"))]
    plain = [YAML(typ="safe", pure=True).load(text) for text in studies]
    points = (ROOT / "examples" / "scaling.csv").read_text() if (ROOT / "examples" / "scaling.csv").exists() else POINTS
    manifests = [path.read_text() for path in sorted((ROOT / "src" / "steptime" / "frameworks").glob("*/*.toml"))]

    def of_study(text: str, _: int) -> int:
        Path("study.yaml").write_text(text, errors="surrogateescape")
        return run_verb("run", "study.yaml", "--dry-run")

    def of_profile(text: str, number: int) -> int:
        Path("mutant.json").write_text(text, errors="surrogateescape")
        changes = [[], ["batch_per_worker=16,64"], ["hosts=2", "interconnect.bandwidth=1Gbit/s"], ["bucket_mb=4"]]
        return run_verb("predict", "mutant.json", *changes[number % len(changes)])

    def of_points(text: str, _: int) -> int:
        Path("points.csv").write_text(text, errors="surrogateescape")
        return run_verb("predict", "--curve", "points.csv")

    def of_records(text: str, number: int) -> int:
        shutil.rmtree("results", ignore_errors=True)
        shutil.copytree(results, "results")
        name, content = json.loads(text)
        Path("results", name).write_text(content, errors="surrogateescape")
        verbs = [["report"], ["status"], ["export", "--to", "csv"], ["report", "--json"], ["fit", "-o", "fitted.json"]]
        verbs += [["export", "--to", "chrome"], ["status", "--json"]]
        verb, *options = verbs[number % len(verbs)]
        return run_verb(verb, "results", *options)

    def of_manifest(text: str, _: int) -> int:
        Path("framework").mkdir(exist_ok=True)
        Path("framework", "framework.toml").write_text(text, errors="surrogateescape")
        try:
            load_manifest(Path("framework", "framework.toml"))
        except (OSError, ValueError):  # as documented: a plug-in is then named with the cause
            return 2
        return 0

    files = [path for path in results.rglob("*.json*") if path.stat().st_size < 1 << 20]

    def mutant_of_file(path: Path) -> st.SearchStrategy[str]:
        text, name = path.read_text(), str(path.relative_to(results))
        lines = unsigned(text.splitlines()) if path.suffix == ".jsonl" else [json.loads(text)]
        structured = changed(lines).map(lambda each: "\n".join(map(json.dumps, each)) + "\n")
        return st.one_of(structured, structured, torn(text)).map(lambda content: json.dumps([name, content]))

    data = json.loads(profile.read_text())
    for group in data["groups"]:
        for parameter in group["parameters"].values():
            parameter["draws"] = parameter["draws"][:8]
    whole = json.dumps(data)
    return [
        Subject("study", st.one_of(*(changed(each).map(as_yaml) for each in plain), *map(torn, studies)), of_study),
        Subject("profile", st.one_of(changed(data).map(json.dumps), torn(whole)), of_profile),
        Subject("points", torn(points), of_points),
        Subject("records", st.sampled_from(files).flatmap(mutant_of_file), of_records),
        Subject("manifest", st.sampled_from(manifests).flatmap(torn), of_manifest),
    ]


POINTS = "workers,step_time_s,batch_per_worker,strategy,role\n1,0.1,32,allreduce,fit\n2,0.11,32,allreduce,fit\n"


class Campaign:
    """Feeds mutants and keeps what went wrong, one example for each place in the code."""

    def __init__(self) -> None:
        self.fed: Counter[str] = Counter()
        self.codes: Counter[int] = Counter()
        self.failures: dict[str, str] = {}
        self.slowest_s = 0.0

    def feed(self, subject: Subject, mutant: str) -> None:
        """Give one mutant to the program."""
        number = self.fed.total()
        self.fed[subject.name] += 1
        before, cause = time.process_time(), ""
        signal.setitimer(signal.ITIMER_PROF, CPU_LIMIT_S)
        signal.setitimer(signal.ITIMER_REAL, WALL_LIMIT_S)
        try:
            code = subject.feed(mutant, number)
            self.codes[code] += 1
            cause = "" if code in CODES else f"exit code {code}"
        except (Exception, TooLongError) as error:  # noqa: BLE001 - whatever it is, it is a finding
            frames = [each for each in traceback.extract_tb(error.__traceback__) if "steptime" in each.filename]
            place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "outside"
            cause = f"{type(error).__name__} at {place}: {str(error)[:200]}"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
        self.slowest_s = max(self.slowest_s, time.process_time() - before)
        if not cause and peak_bytes() > MEMORY_LIMIT and not any("memory" in each for each in self.failures):
            cause = f"{peak_bytes() >> 20} MB of memory"
        if cause:
            key = f"{subject.name}: {cause.partition(': ')[0]}"
            self.failures.setdefault(key, f"{cause}\nnumber {number}\n{mutant[:3000]}")


def peak_bytes() -> int:
    """Return the most memory that this program has had, in bytes.

    Linux lets ``ru_maxrss`` pass to a new program from the process that started it, so a large pytest would count.
    """
    (line,) = (each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def generated(count: int, start: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return what gives a test ``count`` examples, the same ones for the same ``start``; none is kept."""
    limits = settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    return lambda test: seed(start)(limits(test))


def run_campaign(count: int, start: int) -> Campaign:
    """Feed ``count`` mutants, the same ones for the same ``start``."""
    campaign = Campaign()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ.update(STEPTIME_CACHE=str(folder / "cache"), COLUMNS="100")
        os.chdir(folder)
        kinds = subjects(folder)

        def too_long(*_: object) -> None:
            raise TooLongError

        signal.signal(signal.SIGPROF, too_long)
        signal.signal(signal.SIGALRM, too_long)
        for subject in kinds:

            @generated(-(-count // len(kinds)), start)
            @given(mutant=subject.mutants)
            def feed(subject: Subject, mutant: str) -> None:
                campaign.feed(subject, mutant)

            feed(subject)
        os.chdir("/")
    return campaign


def main() -> None:
    """Print what the mutants came to, as JSON; end with 1 where any failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    given_ = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    campaign = run_campaign(given_.mutants, given_.seed)
    found = {
        "mutants": campaign.fed.total(),
        "by_kind": campaign.fed,
        "exit_codes": campaign.codes,
        "slowest_cpu_s": round(campaign.slowest_s, 1),
        "peak_mb": peak_bytes() >> 20,
        "failures": campaign.failures,
    }
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    sys.exit(bool(campaign.failures))


if __name__ == "__main__":
    main()
