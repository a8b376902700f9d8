"""What all tests share: the modules that start things, and what a run says at its end.

A run's end names the folders in which its time went, the tests that were repeated and why, the frameworks that it
trained, and why tests were skipped.
"""

import fcntl
import gc
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from steptime.catalog.accelerators import find_accelerators
from steptime.catalog.manifest import load_manifests
from steptime.worker.usage import cpu_s

# The same cases in every run, and no failure because another program keeps the machine busy.
settings.register_profile("steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")

HERE = Path(__file__).parent
# `launching` starts processes of a framework, `program` the program as a user types it, `standin` is a framework of a
# few lines that no launcher can tell from a real one, `small_study` a study for tests of a run, `image_folders` writes
# pictures, `simulated`, `launch_phases` and `stored_processes` make up records. `system_packages` lists what tests use
# of the system.
_SHARED = (
    *("frameworks", "end_to_end", "worker", "launchers", "corpus", "runner", "execution", "datasets", "results"),
    "attached",
)
sys.path += [str(HERE), *(str(HERE / folder) for folder in _SHARED), str(HERE.parent / ".ci")]

from launching import interpreter_for  # noqa: E402 - found through the line above
from system_packages import missing  # noqa: E402 - as is this

from kept_pictures import keep_pictures, remove_old_pictures  # noqa: E402 - as is this

FRAMEWORKS = set(load_manifests())
DEFAULT = {name for name, each in load_manifests().items() if each.environment == "core"} | {"pytorch"}
"""Frameworks that the contract suite trains in `make test`; in `make test-frameworks` it trains the others."""
_TRAINING = {"contract", "frameworks", "launchers"}
"""Folders whose cases are named after frameworks; elsewhere a framework's name may be an example."""
_LONG = [
    "end_to_end",
    "attached",
    "examples",
    "planted",
    "contract",
    "frameworks",
    "launchers",
    "environments",
    "predict",
    "curves",
    "net",
]
"""Folders whose tests start many processes or fit models, the longest first."""
_LONGEST = [
    "attached/test_tutorial.py",
    "frameworks/test_library_modules.py",
    "frameworks/test_own_module_kinds.py",
    "launchers/test_ray_cluster.py",
    "launchers/test_emulated_frameworks.py",
]
"""Files of the other frameworks that take minutes in one process: they begin first, so that none ends last alone."""
_COVERING = ["comparison", "interval", "launch_spread", "simultaneous", "stalls", "stopping_rule"]
"""Modules of statistics that draw many studies and count how often an interval covers what was planted."""
_SCRIPTS = ["torch_scripts", "data_parallel_scripts", "frameworks_beside_torch", "small_jax_states"]
"""Modules of attach that train in a framework's own environment."""
_DRAWING = ["accounts", "answer", "breakdown_page", "browser", "charts", "extras", "learning_figures", "page"]
"""Modules of report that draw pages with all their pictures."""
_NOT_QUICK = (
    *_LONG,
    *["ci", "cli", "corpus", "datasets", "docs", "locks", "runner", "equivalence", "execution", "exports", "stored"],
    *["contract", "plugins", "worker", "study/test_study_form.py"],
    *["analysis/test_change.py", "analysis/test_nested_stages.py", "imported/test_logs.py", "scaling/test_speedup.py"],
    *(f"attach/test_{name}.py" for name in (*_SCRIPTS, "garbage", "older_pythons")),
    *(f"report/test_{name}.py" for name in _DRAWING),
    *[f"statistics/test_{name}.py" for name in (*_COVERING, "undecided_pairs")],
    *[f"results/test_{name}.py" for name in ("mutated_records", "noise", "store_damage")],
)
"""Folders and files whose tests start processes or take long, which `make quick` leaves out; all others are in it."""
assert all((HERE / name).exists() for name in _NOT_QUICK), f"a name in {_NOT_QUICK} is no path in {HERE}"
_COSTLY = {
    HERE / name
    for name in (
        *("attached/test_ablation.py", "cli/test_user_output.py", "contract/test_killed_workers.py"),
        *(f"attach/test_{name}.py" for name in ("attention", "batches_made_anew", "dropped_gradients", "usual_steps")),
        *(f"attach/test_{name}.py" for name in ("loaders_at_old_addresses", "new_optimizers", "webdataset")),
        *(f"end_to_end/test_{name}.py" for name in ("emulated_study", "environments_of_one_study", "kills")),
        *("examples/test_numpy_ring.py", "frameworks/test_torch_compilation.py", "launchers/test_podman_launches.py"),
        *("corpus/test_fuzz.py", "predict/test_recovery.py", "curves/test_synthetic_curves.py"),
        *(f"launchers/test_emulated{part}.py" for part in ("", "_frameworks", "_groups", "_net", "_rootless")),
    )
}
"""Files that take long and guard one place, beside tests that need a browser or a bed of hosts."""
assert all((HERE / name).exists() for name in _LONGEST), f"of {_LONGEST}, some are no files"
assert all(path.exists() for path in _COSTLY), f"of {_COSTLY}, some are no files"
_SHARING = {"end_to_end", "datasets", "planted", "predict"}
"""Folders whose files share a study, a launch, a fit or an environment; elsewhere the tests of one file do, at most."""
_IMPORTING = {"attach": "attach", "contract": "contract", "frameworks": "frameworks", "planted": "frameworks"}
"""Folders whose default tests fork processes that have imported PyTorch; those of one name share these processes."""
_ALONE_MARK = re.compile(r"\bmark\.alone\b")
_FURTHER_MARK = re.compile(r"\bmark\.(further\b|framework\((?!\"pytorch\"\)))")
"""How a file that is no test of training marks tests of the runs `-m alone` and `--frameworks further`, which collect
no file without: that would take most of these runs' processes half a minute."""
_WORTH_SHOWING_S = 60.0
_FILES_SHOWN = 50
_processor_s = 0.0
_representatives: set[tuple[str, ...]] = set()
"""Each test that is marked ``sampled`` with values of the parameters that the mark names, once for each of them."""
_TRAINED = "trained framework"
"""The property of a test that trains a framework; its value is the framework's name."""


@pytest.fixture(autouse=True)
def _heard_signals() -> Iterator[None]:
    """Let a test and what it starts hear SIGHUP and SIGINT, which a run below nohup or behind ``&`` ignores."""
    deaf = [number for number in (signal.SIGHUP, signal.SIGINT) if signal.getsignal(number) is signal.SIG_IGN]
    for number in deaf:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number in deaf:
        signal.signal(number, signal.SIG_IGN)


def pytest_sessionstart() -> None:
    """Draw no picture a second time."""
    keep_pictures()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Leave no more pictures than a few runs need."""
    if not hasattr(session.config, "workerinput"):
        remove_old_pictures()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test before its fixtures are made where a system package that it needs is missing, or it needs root."""
    needs = dict.fromkeys(need for marker in item.iter_markers("needs") for need in marker.args)
    if "root" in needs and os.geteuid():
        pytest.skip("needs root")
    if reason := missing(*(need for need in needs if need != "root")):
        pytest.skip(reason)


@pytest.fixture
def trained_framework(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> str:
    """The test's parameter ``name``, counted in the summary; skips a framework that is not installed."""
    name = str(request.node.callspec.params["name"])
    record_property(_TRAINED, name)
    interpreter_for(name)
    return name


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let two runs share the tests between them, none twice, and gather why tests were skipped."""
    parser.addoption(
        "--frameworks",
        choices=["all", "default", "further", *sorted(FRAMEWORKS)],
        default="all",
        metavar="all|default|further|NAME",
        help="leave out what trains frameworks other than PyTorch and the reference, or all but that; or test one",
    )
    parser.addoption(
        "--device",
        choices=["cuda"],
        help="run what needs a CUDA device and nothing else, in the frameworks' environments for CUDA; ends with a "
        "table of what held. A test that is skipped fails, so that without a device all do.",
    )
    parser.addoption(
        "--held",
        type=Path,
        metavar="FILE",
        help="with --device: leave out the tests that FILE names, and append each that holds, to go on another day",
    )
    parser.addoption("--quick", action="store_true", help="leave out what starts processes or takes long")
    parser.addoption("--skipped-to", type=Path, help="append the reason of each skipped test to this file, one a line")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Name each test of a device as it ends: a machine that is lent may be gone before the summary."""
    if config.getoption("--device"):
        config.option.verbose = max(1, config.option.verbose)


class _OneProcessPerGroup(LoadScopeScheduling):
    """Keeps in one process the tests of a file, or of a folder whose files share a launch.

    Of the contract suite, those of a framework, which is imported once for them all; PyTorch's and the reference's with
    all others that fork the same processes.

    xdist's own groups are none with pytest 9.2: they were told to the scheduler by a changed id of the test.
    """

    def _split_scope(self, nodeid: str) -> str:
        if self.config.getoption("--device"):  # one launch a test, on a machine that may be lent for minutes
            return nodeid
        file = nodeid.split("::", 1)[0]
        folder = file.rsplit("/", 1)[0]
        framework = nodeid.partition("[")[2].rstrip("]").split("-")[0]
        if folder.endswith("/contract") and framework in FRAMEWORKS - DEFAULT:
            return f"{folder}[{framework}]"
        name = folder.rsplit("/", 1)[-1]
        if name in _IMPORTING and self.config.getoption("--frameworks") == "default":
            return _IMPORTING[name]
        return folder if name in _SHARING else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    """Deal out groups of tests, see above, whatever ``--dist`` says."""
    return _OneProcessPerGroup(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Where no bytecode of tests is kept yet, let one process write it while the others wait for it to collect."""
    gc.disable()  # it would look through all that is collected again and again, and almost nothing of it is garbage
    kept = sys.dont_write_bytecode or any(HERE.glob("*/__pycache__/test_*.pyc"))
    if kept or not hasattr(session.config, "workerinput"):
        return (yield)
    folder = os.open(HERE, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(folder, fcntl.LOCK_SH)
        return (yield)
    finally:
        os.close(folder)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what takes long and guards one place, and cases that another one stands for."""
    needs = {need for marker in item.iter_markers("needs") for need in marker.args}
    if item.path in _COSTLY or needs & {"browser", "hosts"} or _is_represented(item):
        item.add_marker("costly")


def _is_represented(item: pytest.Item) -> bool:
    """Whether an earlier case of a test that is marked ``sampled`` has the same values of the parameters it names."""
    mark = item.get_closest_marker("sampled")
    if mark is None or not _is_default(item):
        return False
    case = (item.nodeid.partition("[")[0], *(str(item.callspec.params[name]) for name in mark.args))
    known = case in _representatives
    _representatives.add(case)
    return known


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what `make quick` does not run, and files without a chosen test; None asks the other plugins."""
    left_out = config.getoption("--quick") and any(collection_path == HERE / name for name in _NOT_QUICK)
    return True if left_out or _has_none_chosen(collection_path, config) else None


def _has_none_chosen(path: Path, config: pytest.Config) -> bool:
    """Whether a file of tests that was not asked for by name has no mark that the run asks for."""
    named = {Path(argument.partition("::")[0]).resolve() for argument in config.args}
    if path.suffix != ".py" or not path.name.startswith("test_") or path in named:
        return False
    if config.getoption("markexpr") == "alone":
        return _lacks(_ALONE_MARK, path)
    return config.getoption("--frameworks") == "further" and _lacks(_FURTHER_MARK, path)


@cache
def _lacks(mark: re.Pattern[str], path: Path) -> bool:
    """Whether the text of a file has no such mark; files of training need none to be of further frameworks."""
    if mark is _FURTHER_MARK and path.parent.name in _TRAINING:
        return False
    return mark.search(path.read_text(encoding="utf-8")) is None


def _find_hidden(items: Sequence[pytest.Item]) -> None:
    """Raise where a test is of a run that leaves out its file, since the mark does not stand in its text."""
    hidden = [item for item in items if item.get_closest_marker("alone") and _lacks(_ALONE_MARK, item.path)]
    hidden += [item for item in items if not _is_default(item) and _lacks(_FURTHER_MARK, item.path)]
    if hidden:
        names = ", ".join(sorted({item.nodeid.partition("[")[0] for item in hidden}))
        sentence = (
            f"no run of CI would have these tests: {names}; write pytest.mark.alone, pytest.mark.further or "
            "pytest.mark.framework(NAME) into their files, not into another that they import"
        )
        raise pytest.UsageError(sentence)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of the other of the two runs that share them, and start with those that take long."""
    gc.freeze()  # what is collected stays to the end, and need not be looked through again
    gc.enable()
    if hasattr(config, "workerinput"):  # the Makefile's for this process alone, whose libraries have been loaded
        os.environ.pop("OPENBLAS_NUM_THREADS", None)
    if config.getoption("--device"):
        held = _held_before(config.getoption("--held"))
        kept = [item for item in items if item.get_closest_marker("cuda") and item.nodeid not in held]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = _claims_first(kept)
        return
    if config.getoption("--quick"):
        long = {item for item in items if item.get_closest_marker("framework") or item.get_closest_marker("costly")}
        config.hook.pytest_deselected(items=list(long))
        items[:] = [item for item in items if item not in long]
    chosen = config.getoption("--frameworks")
    if chosen == "default":  # every file is collected
        _find_hidden(items)
    if chosen != "all":
        kept: list[pytest.Item] = []
        others: list[pytest.Item] = []
        for item in items:
            by_framework = chosen in FRAMEWORKS
            wanted = _framework_of(item) == chosen if by_framework else _is_default(item) == (chosen == "default")
            (kept if wanted else others).append(item)
        config.hook.pytest_deselected(items=others)
        items[:] = kept
    _spend_processor_time()  # what collecting took is no test's
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    """Return when a test begins: long ones first, so that all processes end at about the same time."""
    folder = item.path.parent.name
    if folder in _IMPORTING or f"{folder}/{item.path.name}" in _LONGEST:
        return -1
    return _LONG.index(folder) if folder in _LONG else len(_LONG)


def _held_before(path: Path | None) -> set[str]:
    return set(path.read_text().splitlines()) if path is not None and path.exists() else set()


def _claims_first(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return tests of a device so that a few minutes show most: every claim once, by PyTorch, then its other cases."""
    before: Counter[str] = Counter()
    places = {}
    for item in sorted(items, key=lambda each: _framework_of(each) != "pytorch"):
        claim = item.nodeid.partition("[")[0]
        places[item.nodeid] = before[claim]
        before[claim] += 1
    return sorted(items, key=lambda each: places[each.nodeid])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let the tests of a device take turns on it, in however many processes: together each takes many times as long."""
    if not item.config.getoption("--device"):
        return (yield)
    with Path(__file__).open() as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        return (yield)


def _is_default(item: pytest.Item) -> bool:
    """Whether a test is one of ``--frameworks default``."""
    return _framework_of(item) in {None, *DEFAULT} and item.get_closest_marker("further") is None


def _framework_of(item: pytest.Item) -> str | None:
    """The framework that a test trains: by its marks, beyond the default ones, by its case, or by its module's name."""
    marked = (name for mark in item.iter_markers("framework") for name in mark.args)
    if other := next((name for name in marked if name in FRAMEWORKS - DEFAULT), None):
        return other
    case = getattr(item, "callspec", None)
    named = [case.params.get(name) for name in ("name", "framework", "manifest")] if case else []
    stem = item.path.stem.removeprefix("test_")
    named += sorted((name for name in FRAMEWORKS if stem == name or stem.startswith(f"{name}_")), key=len, reverse=True)
    names = [name for name in named if isinstance(name, str) and name in FRAMEWORKS]
    return names[0] if names and item.path.parent.name in _TRAINING else None


def _spend_processor_time() -> float:
    """Return the processor seconds of this process and its children since the last call.

    Those that live are servers whose copies are a test's launches; they and the copies that ended are counted.
    """
    global _processor_s
    living: list[str] = []
    for children in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # its thread has ended
            living += children.read_text().split()
    before, _processor_s = _processor_s, sum(os.times()[:4]) + sum(map(cpu_s, living))
    return _processor_s - before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note the processor time, and let a skipped test of a run for a device fail: what was asked did not happen."""
    report = yield
    report.processor_s = _spend_processor_time()
    if report.skipped and item.config.getoption("--device"):
        report.outcome = "failed"
        report.longrepr = f"not run: {_reason(report)}"
    held = item.config.getoption("--held")
    if held is not None and item.config.getoption("--device") and report.when == "call" and report.passed:
        with held.open("a") as file:
            file.write(f"{item.nodeid}\n")
    return report


def _show_held(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what of the code for CUDA devices held, test by test."""
    found = find_accelerators()
    terminalreporter.section("on CUDA devices")
    names = ", ".join(each.name for each in found.devices) or "no CUDA device on this machine"
    terminalreporter.line(f"{names}, driver {found.driver}")
    outcomes = {"passed": "held", "failed": "did not hold", "error": "did not hold"}
    for outcome, words in outcomes.items():
        for report in terminalreporter.stats.get(outcome, []):
            said = report.longrepr if isinstance(report.longrepr, str) else ""
            terminalreporter.line(f"{words:12}  {report.nodeid}{f': {said}' if said else ''}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say where the time went, which frameworks were trained and why not the others; file why tests were skipped."""
    if config.getoption("--device"):
        _show_held(terminalreporter, config)
    if hasattr(config, "workerinput"):  # a process of xdist: the one that started it has its reports too
        return
    _show_seconds_by_folder(terminalreporter)
    _show_repeated(terminalreporter, config.getoption("only_rerun", None) or [])
    target = config.getoption("--skipped-to")
    if target is not None:
        reasons = [_reason(report) for report in terminalreporter.stats.get("skipped", [])]
        with target.open("a") as file:
            file.writelines(f"{reason}\n" for reason in reasons)
    trained, left_out = set(), {}
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            name = dict(getattr(report, "user_properties", ())).get(_TRAINED)
            if name is None:
                continue
            if outcome == "skipped":
                left_out.setdefault(name, _reason(report))
            else:
                trained.add(name)
    known = trained | set(left_out)
    if not known:
        return
    terminalreporter.section("frameworks")
    names = ", ".join(sorted(trained))
    terminalreporter.line(f"contract suite trained {len(trained)} of {len(known)} frameworks: {names}")
    for name in sorted(set(left_out) - trained):
        terminalreporter.line(f"not {name}: {left_out[name]}")


def _show_repeated(terminalreporter: pytest.TerminalReporter, causes: Sequence[str]) -> None:
    """Say which tests were repeated, and for which of the causes that ``--only-rerun`` allows."""
    tests: dict[str, list[str]] = {cause: [] for cause in causes}
    for report in terminalreporter.stats.get("rerun", []):
        said = getattr(getattr(report.longrepr, "reprcrash", None), "message", report.longreprtext)
        cause = next((each for each in causes if re.search(each, said)), "another cause, which its own marker allows")
        tests.setdefault(cause, []).append(report.nodeid)
    if not tests:
        return
    terminalreporter.section("repeated tests")
    for cause, repeated in tests.items():
        terminalreporter.line(f"{len(repeated):4} repeated because of: {cause}")
        for nodeid in repeated:
            terminalreporter.line(f"       {nodeid}")


def _show_seconds_by_folder(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the time of each folder's tests and of the dearest files, if they took over a minute in all."""
    seconds: Counter[str] = Counter()
    processor: Counter[str] = Counter()
    by_file: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for report in (each for reports in terminalreporter.stats.values() for each in reports):
        if isinstance(report, pytest.TestReport):
            file = report.nodeid.split("::")[0].removeprefix("tests/")
            folder = file.rpartition("/")[0]
            seconds[folder] += report.duration
            spent = getattr(report, "processor_s", 0.0)  # a test whose process crashed has no such report
            processor[folder] += spent
            by_file[file] += spent
            tests[folder] += report.when == "call"
    if seconds.total() < _WORTH_SHOWING_S:
        return
    terminalreporter.section("processor time and time by folder")
    for folder, spent in processor.most_common():
        terminalreporter.line(f"{spent:8.1f} s  {seconds[folder]:8.1f} s  {tests[folder]:5} tests  {folder}")
    every = f"{processor.total():8.1f} s  {seconds.total():8.1f} s  {tests.total():5} tests"
    terminalreporter.line(f"{every}  in all, added up over processes")
    terminalreporter.section("processor time of the dearest files")
    for file, spent in by_file.most_common(_FILES_SHOWN):
        terminalreporter.line(f"{spent:8.1f} s  {file}")


def _reason(report: pytest.TestReport) -> str:
    """The reason of a skipped test, in one line."""
    return " ".join(str(report.longrepr[2]).removeprefix("Skipped: ").split())
