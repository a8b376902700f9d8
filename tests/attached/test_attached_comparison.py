"""Two versions of a user's own script are compared by their attached runs."""

import json
import shutil
from xml.etree import ElementTree as ET

import pytest
from claims import further_digits, large_percentages, too_wide
from stored_processes import COMMAND, a_run, ddp_steps, found_in, process_lines, write
from typer.testing import CliRunner

from steptime.cli.app import app, run_program
from steptime.results.gpu_windows import RECORDS
from steptime.results.store import Store


@pytest.fixture
def versions(tmp_path):
    """Three runs each, in turns, of a script, of one as quick, and of one whose steps of 40 ms are 8 ms longer."""
    lates_ms = {"old": (0.0, 0.2, 0.4), "same": (0.41, 0.21, 0.01), "slower": (8.0, 8.2, 8.4)}
    for index, (version, lates) in enumerate(lates_ms.items()):
        (tmp_path / version).mkdir()
        for number, late_ms in enumerate(lates):
            a_run(tmp_path / version / str(number), 3 * number + index, late_ms, script=f"{version}.py")
    return tmp_path


def copied(run, copy, **header):
    """Copy a run, with another ``header``."""
    shutil.copytree(run, copy)
    store = Store.open(copy)
    store.put("attached", {**store.get("attached"), **header})


def compared(*arguments):
    return json.loads(CliRunner().invoke(app, ["compare", *map(str, arguments), "--json"]).stdout)


def test_the_ratio_of_two_versions_is_that_of_their_steps(versions):
    (trial,) = compared(versions / "old", versions / "slower")["trials"]

    assert trial["ratio"]["value"] == pytest.approx(48.2 / 40.2, rel=0.01)
    assert trial["verdict"] == "slower"


@pytest.mark.parametrize(
    "late_ms",
    [
        lambda step: [4.0 * (step % 2), 4.0 * ((step + 1) % 2)],
        lambda step: [max(0.0, 9.0 - step), 0.3 * (step % 3)],
        lambda step: [1.0, 12.0 * (step % 7 == 0)],
    ],
    ids=["in turns", "warming up", "stalls"],
)
def test_a_step_is_as_long_in_a_comparison_as_in_the_answer_of_its_run(tmp_path, late_ms):
    for run, name in enumerate(("one", "other")):
        a_run(tmp_path / name, run, 0.0)
        steps = [ddp_steps(rank, late_ms, gap=0.2 * run) for rank in range(2)]
        for number, step in enumerate(steps[1]):  # ends of the ranks alternate
            shorter = 300_000 * (number % 2)
            step["duration_ns"] -= shorter
            step["regions"]["update"] -= shorter
        write(tmp_path / name, *(process_lines(rank, 2, own) for rank, own in enumerate(steps)))
    (trial,) = compared(tmp_path / "one", tmp_path / "other")["trials"]

    assert trial["first_step_s"] == pytest.approx(found_in(tmp_path / "one", 60_000.0).step_s.value, rel=1e-9)


def test_versions_that_are_as_quick_show_no_difference(versions):
    (trial,) = compared(versions / "old", versions / "same")["trials"]

    assert trial["verdict"] == "no difference"
    assert trial["smallest_change"] > 0.0


def test_steps_of_other_batches_are_named(tmp_path):
    for number in range(4):
        version = ("old", "new")[number % 2]
        (tmp_path / version).mkdir(exist_ok=True)
        a_run(tmp_path / version / str(number), number, 10.0 * (number % 2), samples=8 + 8 * (number % 2))
    (trial,) = compared(tmp_path / "old", tmp_path / "new")["trials"]
    assert "new: a step has 32 samples, not 16: 640 samples/s, not 400" in json.dumps(trial)


def test_steps_of_equal_batches_are_not(versions):
    assert "samples, not" not in json.dumps(compared(versions / "old", versions / "slower"))


def trained_again(folder, times=1):
    """Add shorter trainings of the same command to a run, behind what it trained."""
    for number in range(1, times + 1):
        steps = ddp_steps(0, lambda _: [1.0], steps=20)
        for each in steps:
            each["begin_ns"] += number * 5 * 10**9
            each["backwards"] = []
        lines = process_lines(0, 1, steps, pid=500 + number, environment={}, program=["again.py"])
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / RECORDS / f"again-{number}.jsonl").write_text(text)


AGAIN = "the command trained {} times; the longest training is compared"


@pytest.mark.parametrize(
    ("times", "flag"),
    [
        ([1, 1, 1], f"slower: {AGAIN.format(2)}"),
        ([1, 3, 2], f"slower: {AGAIN.format('2 to 4')}"),
        ([0, 2, 0], f"slower: 1 of 3 runs: {AGAIN.format(3)}"),
    ],
)
def test_a_comparison_of_one_of_several_trainings_has_a_mark(versions, times, flag):
    for number, again in enumerate(times):
        trained_again(versions / "slower" / str(number), again)

    (trial,) = compared(versions / "old", versions / "slower")["trials"]
    text = CliRunner().invoke(app, ["compare", str(versions / "old"), str(versions / "slower")]).stdout

    assert [each for each in trial["flags"] if "trained" in each] == [flag]
    assert flag in " ".join(text.split())
    assert trial["ratio"]["value"] == pytest.approx(48.2 / 40.2, rel=0.01)


def test_a_command_that_trained_once_has_no_mark_of_several_trainings(versions):
    (trial,) = compared(versions / "old", versions / "slower")["trials"]

    assert not [each for each in trial["flags"] if "trained" in each]


@pytest.mark.parametrize("form", [["--json"], []], ids=["JSON", "text"])
@pytest.mark.parametrize("again", [0, 2])
def test_a_profile_of_one_of_several_trainings_has_a_note(versions, form, again):
    folder = versions / "old" / "0"
    trained_again(folder, again)

    done = CliRunner().invoke(app, ["fit", str(folder), "-o", str(versions / "profile.json"), *form])
    notes = json.loads(done.stdout)["notes"] if form else done.stderr.splitlines()

    several = [note for note in notes if note.startswith("the command trained 3 times, one after the other")]
    assert len(several) == (again > 0)
    assert all("the step and its parts are of number 1" in note for note in several)


@pytest.mark.parametrize("columns", ["80", "120"])
@pytest.mark.parametrize("second", ["same", "slower", "slower/0"])
def test_a_comparison_claims_what_its_intervals_allow(versions, second, columns):
    done = CliRunner().invoke(app, ["compare", str(versions / "old"), str(versions / second)], env={"COLUMNS": columns})

    assert "own script" in done.stdout
    assert not [*too_wide(done.stdout), *large_percentages(done.stdout), *further_digits(done.stdout)]


def test_runs_of_different_numbers_of_ranks_are_refused_with_one_reason(tmp_path):
    a_run(tmp_path / "one", 0, 0.0, world=1)
    a_run(tmp_path / "two", 1, 0.0, world=2)
    done = CliRunner().invoke(app, ["compare", str(tmp_path / "one"), str(tmp_path / "two")])

    assert str(done.exception).count("has no such trial") == 1


def test_a_slower_version_fails_a_threshold(versions):
    assert run_program(["compare", str(versions / "old"), str(versions / "slower"), "--fail-over", "5%"]) == 1


def test_the_changed_command_is_named(versions):
    found = compared(versions / "old", versions / "slower")["software"]

    assert ["old.py" in each["first"] and "slower.py" in each["second"] for each in found if each["fact"] == "command"]


def test_single_runs_give_a_ratio_and_no_verdict(versions):
    (trial,) = compared(versions / "old" / "0", versions / "slower" / "0")["trials"]

    assert trial["verdict"] == "undecided"


def test_runs_on_other_numbers_of_processes_are_not_compared(versions):
    a_run(versions / "alone", 0, 0.0, world=1)

    assert run_program(["compare", str(versions / "old"), str(versions / "alone")]) == 2


@pytest.mark.parametrize(
    "header",
    [{}, {"started_at": "2026-01-09T00:00:00+00:00"}, {"begin_ns": COMMAND + 10**14}, {"boot": "boot-9"}],
    ids=lambda header: next(iter(header), "whole"),
)
def test_a_copied_run_counts_once(versions, header):
    copied(versions / "old" / "1", versions / "old" / "copy", **header)
    copied(versions / "old" / "1", versions / "old" / "again", **header)

    (trial,) = compared(versions / "old", versions / "slower")["trials"]

    assert trial["launches"] == [3, 3]
    assert "2 of 5 runs left out: copies of others" in trial["flags"]


def test_a_side_of_copies_of_the_other_side_is_refused(versions, capsys):
    copied(versions / "old" / "1", versions / "old-again" / "0")

    assert run_program(["compare", str(versions / "old"), str(versions / "old-again")]) == 2
    assert "copied; record runs of its own" in capsys.readouterr().err


def test_a_run_that_was_copied_to_the_other_side_counts_on_one(versions):
    copied(versions / "old" / "1", versions / "slower" / "copy")

    (trial,) = compared(versions / "old", versions / "slower")["trials"]

    assert trial["launches"] == [3, 3]
    assert "1 of 4 runs left out: copies of others" in trial["flags"]


def headline_of(first, second, *more):
    """Return the first sentence, in one line, and the exit code."""
    done = CliRunner().invoke(app, ["compare", str(first), str(second), *more])
    return " ".join(done.stdout.split("\n\n")[0].split()), done.exit_code


@pytest.fixture
def noisy(tmp_path):
    """Three runs each, in turns, whose steps of 40 ms are up to 20 ms longer."""
    for number, late_ms in enumerate((20.0, 1.0, 2.0, 0.0, 12.0, 15.0)):
        version = ("old", "new")[number % 2]
        (tmp_path / version).mkdir(exist_ok=True)
        a_run(tmp_path / version / str(number), number, late_ms)
    return tmp_path


def test_launches_that_would_show_large_changes_alone_decide_nothing(noisy):
    (trial,) = compared(noisy / "old", noisy / "new")["trials"]
    headline, code = headline_of(noisy / "old", noisy / "new")

    assert (trial["verdict"], trial["smallest_change"], code) == ("undecided", None, 0)
    assert trial["ratio"]["low"] < 0.8
    assert trial["ratio"]["high"] > 1.2
    assert headline.startswith("undecided: new took ")
    assert f"({100 * (trial['ratio']['low'] - 1):.1f} to +" in headline
    assert "no difference" not in headline


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_a_threshold_that_such_launches_could_not_show_is_undecided_and_fails_if_asked_to(noisy, form):
    arguments = (noisy / "old", noisy / "new", "--fail-over", "5%")
    headline, code = headline_of(*arguments, "--format", form)
    found = compared(*arguments)
    (trial,) = found["trials"]

    assert (found["outcome"], trial["outcome"], found["fails"], code) == ("undecided", "undecided", False, 0)
    assert headline.lstrip("*").startswith(
        "undecided, neither shown nor excluded to be slower by more than 5.00 %: new took"
    )
    assert "passed" not in headline
    assert f"about {trial['launches_to_threshold']} more launches of each would make it 80 %" in headline
    assert headline_of(*arguments, "--fail-undecided")[1] == 1


def test_junit_skips_what_is_undecided_with_its_reason(noisy):
    file = noisy / "compare.xml"
    headline_of(noisy / "old", noisy / "new", "--fail-over", "5%", "--junit", str(file))

    suite = ET.fromstring(file.read_text()).find("testsuite")  # noqa: S314 - written above
    assert [suite.attrib[name] for name in ("tests", "failures", "skipped")] == ["1", "0", "1"]
    assert "would make it 80 %" in next(suite.iter("skipped")).attrib["message"]


@pytest.mark.parametrize(("limit", "outcome"), [("5%", "failed"), ("50%", "passed")])
def test_a_threshold_that_is_decided_has_no_undecided_outcome(versions, limit, outcome):
    old, slower = versions / "old", versions / "slower"
    found = compared(old, slower, "--fail-over", limit)

    assert found["outcome"] == outcome
    codes = {headline_of(old, slower, "--fail-over", limit, *more)[1] for more in ([], ["--fail-undecided"])}
    assert codes == {int(outcome == "failed")}


def started(folder, at):
    """Write a run that begins at a minute, and lasts ten seconds."""
    folder.parent.mkdir(exist_ok=True)
    a_run(folder, at, 0.1 * at)


@pytest.mark.parametrize(
    ("olds", "news", "order", "said"),
    [
        ((0, 2, 4), (1, 3, 5), "turns", "Runs of both took turns, by the times at which they began."),
        ((0, 3, 4), (1, 2, 5), "turns", "Runs of both took turns, by the times at which they began."),
        ((0, 1, 2), (3, 4, 5), "one after the other", "Both were measured one after the other."),
        ((0, 2, 4), (1, 3), "unknown", "and a launch of each did not follow by turns"),
    ],
)
def test_the_order_of_runs_is_that_of_their_starts(tmp_path, olds, news, order, said):
    for version, starts in (("old", olds), ("new", news)):
        for number in starts:
            started(tmp_path / version / str(number), number)

    arguments = ["compare", str(tmp_path / "old"), str(tmp_path / "new")]
    text = " ".join(CliRunner().invoke(app, arguments).stdout.split())
    assert compared(*arguments[1:])["order"] == order
    assert said in text
    assert "randomised" not in text


def test_a_mark_of_a_run_is_words_with_its_side_and_how_many_have_it(versions):
    for number in (0, 2):
        folder = versions / "old" / str(number)
        store = Store.open(folder)
        header = store.get("attached")
        store.put("attached", {**header, "flags": ["noisy_foreign_cpu"], "noise": {"foreign_cpu_cores": 1.5}})

    (trial,) = compared(versions / "old", versions / "slower")["trials"]
    text = CliRunner().invoke(app, ["compare", str(versions / "old"), str(versions / "slower")]).stdout

    assert trial["flags"] == [
        "old: noisy: CPU used by other processes above 0.1 core (2 of 3 launches: 1.5 cores)",
    ]
    assert "noisy_foreign_cpu" not in text


def complaint(capfd, *arguments):
    """Return the refusal of a command."""
    assert run_program([*map(str, arguments)]) == 2
    return capfd.readouterr().err


@pytest.mark.parametrize("verb", ["report", "fit", "export", "status"])
def test_a_folder_of_runs_names_them_as_they_are_typed(versions, monkeypatch, capfd, verb):
    monkeypatch.chdir(versions)
    said = complaint(capfd, verb, "old")

    assert "of which one can be named: old/0, old/1, old/2; of its runs together: steptime compare old OTHER" in said


@pytest.mark.parametrize("names", [("old", "smae"), ("smae", "old"), ("old/0", "smae"), ("smae", "nwe")])
def test_a_comparison_names_the_folder_that_is_missing(versions, monkeypatch, capfd, names):
    monkeypatch.chdir(versions)

    assert complaint(capfd, "compare", *names).startswith("error: smae is not a results folder: no such folder; did")


def test_runs_are_not_compared_with_a_study(versions, monkeypatch, capfd):
    Store.create(versions / "study", study_text="", study_json={"name": "x", "question": ""})
    monkeypatch.chdir(versions)

    for names in (("old", "study"), ("study", "old/0")):
        runs = next(name for name in names if name != "study")
        assert f"study holds a study and {runs} runs of 'steptime attach'" in complaint(capfd, "compare", *names)


def test_the_parts_that_changed_are_named_and_those_that_did_not_are_not(versions):
    (trial,) = compared(versions / "old", versions / "slower")["trials"]
    first, *others = trial["parts"]
    text = CliRunner().invoke(app, ["compare", str(versions / "old"), str(versions / "slower")]).stdout
    table = text.partition("Parts of the step")[2].partition("Software that changed")[0]

    assert first["name"] == "forward"
    assert first["difference_s"]["value_s"] == pytest.approx(0.008, abs=1e-6)
    assert first["difference_s"]["low_s"] == pytest.approx(0.008, abs=1e-5)
    assert all(abs(part["difference_s"]["value_s"]) < 1e-6 for part in others)
    assert "forward 5.20 ms 13.2 ms +8.00 ms (+8.00 to +8.00)" in " ".join(table.split())
    assert "backward" not in table


def test_the_parts_of_a_step_sum_to_it(versions):
    (trial,) = compared(versions / "old", versions / "slower")["trials"]

    for side in ("first", "second"):
        total_s = sum(part[f"{side}_s"] for part in trial["parts"])
        assert total_s == pytest.approx(trial[f"{side}_step_s"], rel=1e-3)


@pytest.mark.parametrize("names", [("old/0", "slower/0"), ("old", "slower/0")])
def test_parts_of_sides_without_several_turns_have_no_interval(versions, names):
    (trial,) = compared(*(versions / name for name in names))["trials"]
    text = CliRunner().invoke(app, ["compare", *(str(versions / name) for name in names)]).stdout

    assert {part["difference_s"]["low_s"] for part in trial["parts"]} == {None}
    assert "Parts of the step" not in text


def test_a_part_that_may_have_changed_is_the_largest_one_alone(noisy):
    (trial,) = compared(noisy / "old", noisy / "new")["trials"]
    text = CliRunner().invoke(app, ["compare", str(noisy / "old"), str(noisy / "new")]).stdout
    table = text.partition("Parts of the step")[2].partition("Software that changed")[0]

    low_s, high_s = (trial["parts"][0]["difference_s"][bound] for bound in ("low_s", "high_s"))
    assert low_s < 0.0 < high_s
    assert sum(line.startswith(("forward", "sync wait", "backward", "update")) for line in table.splitlines()) == 1
