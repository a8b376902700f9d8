"""``steptime compare``: its verdict comes first, its exit code follows the interval, and all its formats agree."""

import json
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from simulated import a_failure, a_launch, a_store, a_trial
from typer.testing import CliRunner

from steptime.cli.app import app, run_program

TRIALS = [a_trial(), a_trial(batch_per_worker=16)]


def results(folder, *, slower=1.0, seed=0, failing=None, trials=TRIALS, days=1):  # noqa: PLR0913 - of a folder
    """Write a results folder of four launches of each trial, some days apart, which spread by 1 %."""
    rng, store = np.random.default_rng(seed), a_store(folder)
    for trial in trials:
        store.add_trial(trial)
        for number in range(4):
            seconds = 0.1 * slower * float(np.exp(rng.normal(0.0, 0.01)))
            failed = failing is not None and trial.id == failing.id
            moment = f"2026-01-{1 + days * number:02d}T00:{number:02d}:00+00:00"
            good = a_launch(trial, number, [seconds] * 10, started_at=moment)
            store.append(a_failure(trial, number) if failed else good)
    return folder


@pytest.fixture
def folders(tmp_path):
    """A baseline, the same again, and one that is 30 % slower."""
    return [
        results(tmp_path / name, slower=slower, seed=seed)
        for seed, (name, slower) in enumerate([("old", 1.0), ("same", 1.0), ("slow", 1.3)])
    ]


def run(*arguments):
    """Return what the program prints to standard output, and its exit code."""
    result = CliRunner().invoke(app, ["compare", *map(str, arguments)], catch_exceptions=False)
    return result.stdout, result.exit_code


def test_the_first_line_is_the_verdict_and_names_the_baseline(folders):
    old, same, slow = folders

    (equal, _), (slower, _) = run(old, same), run(old, slow)

    assert equal.splitlines()[0].startswith("same against old (the baseline), 2 trials: 2 with no difference larger")
    assert slower.splitlines()[0].startswith("slow against old (the baseline), 2 trials: 2 slower (")


def test_sides_that_took_no_turns_are_undecided_and_fail_as_before(tmp_path):
    old, slow = (
        results(tmp_path / name, slower=slower, seed=seed, days=0, trials=TRIALS[:1])
        for seed, (name, slower) in enumerate([("old", 1.0), ("slow", 1.3)])
    )

    (plain, passed), (limited, failed) = run(old, slow), run(old, slow, "--fail-over", "5%")

    plain, limited = (" ".join(text.split()) for text in (plain, limited))
    assert plain.startswith("undecided: slow took 29.8 % more time than old (the baseline), but the sides did not take")
    assert limited.startswith("FAILED, slower by more than 5.00 %: undecided: slow took 29.8 % more")
    assert (passed, failed) == (0, 1)


def test_a_slowdown_that_a_gate_does_not_take_for_shown_is_not_called_passed(folders):
    old, _, slow = folders
    trial = json.loads(run(old, slow, "--fail-over", "5%", "--json")[0])["trials"][0]
    between = 100 * ((trial["ratio"]["low"] + trial["gate_low"]) / 2 - 1)

    text, code = run(old, slow, "--fail-over", f"{between:.4f}%")

    words = " ".join(text.split())
    assert words.startswith("not failed, since it is slower by more than ")
    assert "with a confidence of 95 % and a gate asks for 99 %: slow against old (the baseline)" in words
    assert code == 0


def test_the_exit_code_is_1_only_beyond_the_threshold(folders):
    old, same, slow = folders

    codes = [run(old, second, *limit)[1] for second in (same, slow) for limit in ((), ("--fail-over", "5%"))]

    assert codes == [0, 0, 0, 1]
    assert run(slow, old, "--fail-over", "5%")[1] == 0
    assert run(old, slow, "--fail-over", "0.4")[1] == 0


def test_a_trial_that_only_the_second_side_failed_to_measure_ends_with_3(tmp_path):
    old, new = results(tmp_path / "old"), results(tmp_path / "new", seed=1, failing=TRIALS[0])

    assert run(old, new, "--fail-over", "5%")[1] == 3
    assert run(old, new)[1] == 0


def test_json_has_the_numbers_and_nothing_else(folders):
    output, _ = run(folders[0], folders[2], "--fail-over", "5%", "--json")

    found = json.loads(output)
    assert found["fails"]
    assert [trial["verdict"] for trial in found["trials"]] == ["slower", "slower"]
    assert found["trials"][0]["ratio"]["low"] > 1.05


def test_junit_has_a_test_for_each_trial(folders, tmp_path):
    file = tmp_path / "compare.xml"

    run(folders[0], folders[2], "--fail-over", "5%", "--junit", file)

    suite = ET.fromstring(file.read_text()).find("testsuite")  # noqa: S314 - written above
    assert suite.attrib | {"failures": "2", "tests": "2", "errors": "0"} == suite.attrib
    assert all("slower than old (the baseline)" in each.attrib["message"] for each in suite.iter("failure"))


def test_markdown_begins_with_the_verdict_in_bold(folders):
    output, _ = run(folders[0], folders[1], "--format", "markdown")

    assert output.startswith("**same against old (the baseline)")
    assert "| reference single, mlp, 1 worker, batch 8 | no difference |" in output


def test_a_speed_up_names_its_baseline(tmp_path):
    old, fast = (
        results(tmp_path / name, slower=slower, trials=TRIALS[:1]) for name, slower in (("old", 1), ("fast", 0.5))
    )

    output, _ = run(old, fast)

    assert output.startswith("fast is faster than old (the baseline), speed-up 2.00x")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name a second results folder"),
        (("--by", "framework=pytorch"), "is not KEY=A,B"),
        (("--by", "framework=pytorch,pytorch"), "both values of 'framework'"),
        (("--by", "colour=red,blue"), "unknown key of trials 'colour'"),
        (("--by", "framework=reference,pytorch"), "unknown framework 'pytorch' (choices: reference)"),
        (("--fail-over", "much"), "'much' is not a share"),
        (("--fail-over", "-1%"), "'-1%' is not a share"),
        (("--fail-over", "5"), "--fail-over: 5 has no unit; write 5% or 500%"),
        (("--format", "xml"), "unknown format 'xml' (choices: markdown, text)"),
    ],
)
def test_a_mistake_names_the_value_and_the_choices(folders, capfd, arguments, said):
    code = run_program(["compare", str(folders[0]), *arguments])

    assert code == 2
    assert said in capfd.readouterr().err


def test_folders_of_the_same_name_are_told_apart_by_their_parents(tmp_path):
    old, new = (results(tmp_path / name / "results", seed=seed) for seed, name in enumerate(("a", "b")))

    assert run(old, new)[0].startswith("b/results against a/results (the baseline)")
