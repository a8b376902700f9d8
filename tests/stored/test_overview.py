"""The end of a run: what the short report prints of the stored studies, and of one with two workloads."""

import io
import re

import pytest
from stored_studies import STUDIES, output_of, unpacked

from steptime.analysis.summary import summarise
from steptime.analysis.summary_form import Summary
from steptime.cli.console import PlainConsole
from steptime.report.overview import MOST_LINES, overview
from steptime.results.store import Store

WIDTHS = (80, 100, 120)
NEXT = 4
"""Lines that a verb prints below: the page, and two commands with their title."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {study: unpacked(study, tmp_path_factory.mktemp(study)) for study in STUDIES}


@pytest.fixture(scope="module")
def four_frameworks(folders) -> Summary:
    return summarise(Store.open(folders["four-frameworks"]))


def printed(summary: Summary, width: int, lines: int = MOST_LINES) -> list[str]:
    console = PlainConsole(file=io.StringIO(), width=width)
    console.print(overview(summary, lines))
    return console.file.getvalue().splitlines()


def of_workloads(summary: Summary, *names: str) -> Summary:
    """Return a summary with every trial, check and place once for each workload."""
    trials, ranking, checks = [], [], []
    for name in names:
        for trial in summary.trials:
            group = trial.group.replace("lenet5", name)
            trials.append(trial.model_copy(update={"id": f"{name}-{trial.id}", "workload": name, "group": group}))
        for place in summary.ranking:
            group = place.group.replace("lenet5", name)
            ranking.append(place.model_copy(update={"trial": f"{name}-{place.trial}", "group": group}))
        checks += [check.model_copy(update={"workload": name}) for check in summary.equivalence]
    return summary.model_copy(update={"trials": trials, "ranking": ranking, "equivalence": checks})


@pytest.mark.sampled("study")
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("study", STUDIES)
def test_the_report_of_a_stored_study_takes_a_screen_and_begins_with_the_verdict(folders, study, width):
    lines = output_of("report", str(folders[study]), columns=width).splitlines()

    assert len(lines) <= MOST_LINES
    assert max(len(line) for line in lines[: lines.index("Next:")] if not line.startswith("Page: ")) <= width
    workload = summarise(Store.open(folders[study])).trials[0].workload
    paragraph = lines[: lines.index("")]
    assert paragraph[0].startswith(f"{study}: ")
    assert re.match(rf"{workload}[:,] .*(fastest|cannot be|computes)", " ".join(paragraph).split("? ")[1])


@pytest.mark.parametrize("width", WIDTHS)
def test_two_workloads_with_four_frameworks_and_two_numbers_of_workers_take_a_screen(four_frameworks, width):
    both = of_workloads(four_frameworks, "lenet5", "resnet50")
    lines = printed(both, width, MOST_LINES - NEXT)

    assert len(lines) <= MOST_LINES - NEXT
    paragraph = lines[: lines.index("")]
    assert [
        next(n for n, line in enumerate(paragraph) if line.startswith(f"{name}, ")) for name in ("lenet5", "resnet50")
    ]
    assert [line.split(" ")[0] for line in lines if "framework's own loader" in line] == ["lenet5", "resnet50"]
    table = "\n".join(lines)
    assert all(table.count(name) >= 2 for name in ("tensorflow single", "mxnet single", "pytorch allreduce"))


def test_a_note_is_printed_once_and_not_for_each_trial(four_frameworks):
    notes = [line for line in printed(four_frameworks, 100) if line.startswith("Note: ")]

    assert [note.partition(" (")[0] for note in notes] == [
        "Note: more workers than cores",
        "Note: noisy",
        "Note: timed steps not repeated: its records are from before launches kept evidence of their training",
    ]
    assert "(9 of 9 trials)" in notes[1]


def test_groups_are_cut_to_their_best_where_a_study_is_large(four_frameworks):
    names = [f"net{number}" for number in range(4)]
    lines = printed(of_workloads(four_frameworks, *names), 100)
    whole = printed(of_workloads(four_frameworks, *names), 100, 1000)

    assert len(lines) < len(whole)
    assert any(re.search(r"and \d slower", line) for line in lines)
    assert not any("slower" in line for line in whole)
    for name in names:
        assert sum(line.startswith(name) for line in lines) >= 2  # its sentence and its table


def test_the_end_names_commands_that_work(folders):
    text = output_of("report", str(folders["four-frameworks"]), columns=100)
    commands = [line.split("  # ")[0].split() for line in text.rpartition("Next:\n")[2].splitlines()]

    assert [words[:2] for words in commands] == [["steptime", verb] for verb in ("report", "report", "predict")]
    for words in commands:
        output_of(*words[1:])


def test_a_page_that_is_there_is_named(folders):
    folder = folders["strong-scaling"]
    assert "Page: " not in output_of("report", str(folder))
    (folder / "report.html").write_text("page")

    text = output_of("report", str(folder))
    assert f"Page: {(folder / 'report.html').resolve()}\n" in text
    assert "--html" not in text
