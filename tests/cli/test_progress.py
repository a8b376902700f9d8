"""The progress that is shown of a run."""

import io
import itertools
import re
import time
from types import SimpleNamespace

import pytest
from rich.console import Console

from living_processes import wait_until
from steptime.cli import progress
from steptime.cli.progress import LiveObserver
from steptime.execution.progress import Remaining


@pytest.fixture(autouse=True)
def every_line(monkeypatch):
    """Write every line of a file at once; tests of their pace set another time."""
    monkeypatch.setattr(progress, "_LINE_EVERY_S", 0.0)
    monkeypatch.delenv("COLUMNS", raising=False)


def shown(act, *, terminal=False, width=60):
    # Whatever terminal the tests run in: nothing is redrawn on one that is dumb.
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, _environ={"TERM": "xterm"})
    with LiveObserver(console) as observer:
        act(observer)
    return console.file.getvalue()


def race(observer):
    observer.stage("Racing", 2)
    for number in (1, 2, 3):
        observer.remaining(Remaining(3 - number, 5 - number, 90.0, 240.0))
        observer.working_on(f"pytorch allreduce, lenet5, 2 workers, launch {number}")
        observer.finished(f"launch {number}", ok=number != 2)


def test_a_file_gets_a_line_per_item_with_its_number_and_the_time_left():
    said = "1 of 2 to 4: pytorch allreduce, lenet5, 2 workers, launch 1 (about 1 min 30 s to 4 min 0 s left)\n"
    assert said in shown(race)


def test_more_items_than_foreseen_make_the_stage_longer():
    assert "3 of at most 4: pytorch allreduce" in shown(race)


def test_a_budget_is_all_that_is_said_of_the_time_of_launches_of_which_none_was_seen():
    def measure(observer):
        observer.stage("Racing", 4)
        observer.remaining(Remaining(4, 9, None, 50.0))
        observer.working_on("one")
        observer.remaining(Remaining(4, 9, None, None))
        observer.working_on("two")

    text = shown(measure)
    assert "one (at most 50 s left)" in text
    assert "two\n" in text


def test_a_number_that_is_known_is_no_range():
    def check(observer):
        observer.stage("Checking", 4)
        observer.working_on("one")

    assert "1 of 4: one\n" in shown(check)


def test_times_left_that_are_nearly_the_same_are_one():
    def measure(observer):
        observer.stage("Racing", 4)
        observer.remaining(Remaining(4, 4, 100.0, 104.0))
        observer.working_on("one")

    assert "(about 1 min 44 s left)" in shown(measure)


@pytest.mark.parametrize("width", [60, 140])
def test_a_terminal_shows_the_range_whole_however_narrow_it_is(width):
    def measure(observer):
        observer.stage("Checking that all frameworks compute the same", 36)
        observer.remaining(Remaining(136, 960, 2000.0, 48000.0))
        observer.working_on("horovod_tensorflow allreduce, resnet50, 4 workers, launch 1")
        assert wait_until(lambda: "about 33 min 20 s to 13 h 20 min left" in observer._console.file.getvalue())

    pictures = shown(measure, terminal=True, width=width)
    assert "0 of 136 to 960" in pictures
    assert re.search(r"0:00:\d\d", pictures)


def test_a_stage_leaves_behind_how_much_was_done_and_failed():
    assert "Racing: 3 done, 1 failed, " in shown(race)


def test_what_failed_is_said_on_a_terminal_as_well():
    assert "failed: launch 2" in shown(race, terminal=True)


def test_a_terminal_shows_what_is_being_done():
    def wait(observer):
        observer.stage("Racing", 2)
        observer.working_on("pytorch allreduce, launch 1")
        assert wait_until(lambda: "pytorch allreduce, launch 1" in observer._console.file.getvalue())

    shown(wait, terminal=True)


def test_a_stage_that_says_nothing_of_its_time_is_judged_by_what_is_over(monkeypatch):
    clock = itertools.count(0.0, 6.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now, strftime=time.strftime))
    now = next(clock)

    def check(observer):
        nonlocal now
        observer.stage("Checking", 4)
        for name in ("one", "two", "three", "four"):
            observer.working_on(name)
            now = next(clock)
            observer.finished(name)

    lines = shown(check).splitlines()
    assert "left" not in " ".join(lines[1:3])  # before half of them are over
    assert [line.split(" (about ")[1] for line in lines[3:5]] == ["12 s left)", "6 s left)"]


def test_items_whose_results_were_there_say_nothing_of_the_time_that_others_take(monkeypatch):
    now = 0.0
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now, strftime=time.strftime))

    def check(observer):
        nonlocal now
        observer.stage("Checking", 40)
        for number in range(37):
            observer.finished(f"kept {number}", kept=True)
        for name in ("one", "two", "three"):
            observer.working_on(name)
            now += 6.0
            observer.finished(name)

    assert [line.partition(": ")[2] for line in shown(check).splitlines()[1:4]] == [
        "one",
        "two (about 12 s left)",
        "three (about 6 s left)",
    ]


def test_a_stage_that_goes_on_counts_on():
    def race(observer):
        observer.stage("Racing", 8)
        observer.stage("Racing", 8, 3)
        observer.working_on("one")
        observer.finished("one")

    text = shown(race)
    assert "Racing (8)\n" in text
    assert "Racing (3 of 8 done)\n" in text
    assert "4 of 8: one\n" in text
    assert text.splitlines()[-1].startswith("Racing: 1 done, ")


def test_square_brackets_are_text():
    assert "no Python [3.7 to 3.9]" in shown(lambda observer: observer.note("no Python [3.7 to 3.9]"))


def test_lines_of_a_file_stay_whole(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert "word " * 30 in shown(lambda observer: observer.note("word " * 30), width=40)


def test_lines_are_as_wide_as_who_reads_a_file_has_set_and_break_no_word(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    lines = shown(lambda observer: observer.note("a-hyphenated-word " * 9), width=40).splitlines()
    assert max(map(len, lines)) <= 40
    assert {word for line in lines for word in line.split()} == {"a-hyphenated-word"}


def test_a_stage_of_unknown_length_shows_no_total():
    def prepare(observer):
        observer.stage("Preparing", None)
        observer.working_on("digits")

    assert "/" not in shown(prepare)


def rank_twice(observer):
    observer.stage("Racing", 2)
    observer.block_over()
    observer.block_over()


def test_the_ranking_so_far_is_a_line_of_a_file_once_it_changes(monkeypatch):
    monkeypatch.setattr(progress, "_RANKING_SHARE", 1.0)
    rankings = [["lenet5: pytorch is fastest"]] * 2
    console = Console(file=io.StringIO(), width=60)
    with LiveObserver(console, rankings.pop) as observer:
        observer._created -= 10.0
        rank_twice(observer)
    assert console.file.getvalue().count("so far: lenet5: pytorch is fastest\n") == 1
    assert not rankings


def lines_redrawn(observer, width=60):
    picture = Console(file=io.StringIO(), width=width)
    picture.print(observer._picture())
    return picture.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 100, 140])
def test_a_terminal_shows_three_lines_however_much_is_known(width):
    ranking = [f"{name}, 1 worker: pytorch single is fastest; the next takes 1.2x" for name in ("lenet5", "resnet50")]
    console = Console(file=io.StringIO(), width=width, force_terminal=True)
    with LiveObserver(console, lambda: ranking) as observer:
        observer.stage("Checking that all frameworks compute the same", 36)
        observer.remaining(Remaining(136, 960, 2000.0, 48000.0))
        observer.working_on("horovod_tensorflow allreduce, resnet50, 4 workers, launch 1")
        observer.block_over()
        lines = lines_redrawn(observer, width)

    assert len(lines) == 3
    assert lines[0].startswith("Checking that all frameworks compute the same: h")
    assert "0 of 136 to 960" in lines[1]
    assert lines[2].startswith("  about 33 min 20 s to 13 h 20 min left; so far len")


def test_the_ranking_so_far_is_below_the_bar_of_a_terminal():
    console = Console(file=io.StringIO(), width=60, force_terminal=True)
    with LiveObserver(console, lambda: ["lenet5: pytorch is fastest"]) as observer:
        rank_twice(observer)
        lines = lines_redrawn(observer)
    assert lines[-1] == "  so far lenet5: pytorch is fastest"


def launch(observer, number):
    observer.working_on(f"launch {number}")
    observer.finished(f"launch {number}", ok=number != 3)


def test_a_file_gets_a_line_every_ten_seconds_and_failures_at_once(monkeypatch):
    monkeypatch.setattr(progress, "_LINE_EVERY_S", 10.0)
    now = 0.0
    clock = SimpleNamespace(monotonic=lambda: now, strftime=lambda _: "12:00:00")
    monkeypatch.setattr(progress, "time", clock)

    def measure(observer):
        nonlocal now
        observer.stage("Racing", 60)
        for number in range(60):
            launch(observer, number)
            now += 1.0

    lines = shown(measure).splitlines()
    assert [line.split()[1] for line in lines if "launch" in line and "failed" not in line] == [
        str(number) for number in range(11, 61, 10)
    ]
    assert "  failed: launch 3" in lines


def test_an_item_that_lasts_is_written_once_the_last_line_is_old_enough(monkeypatch):
    monkeypatch.setattr(progress, "_LINE_EVERY_S", 0.3)
    monkeypatch.setattr(progress, "_TICK_S", 0.05)
    now = 0.0
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now, strftime=time.strftime))

    def wait(observer):
        nonlocal now
        observer.stage("Racing", 2)
        launch(observer, 1)
        observer.working_on("launch 2")
        time.sleep(0.1)
        assert "launch 2" not in observer._console.file.getvalue()
        now = 0.31
        assert wait_until(lambda: "launch 2" in observer._console.file.getvalue())

    text = shown(wait)
    assert "2 of 2: launch 2" in text
    assert "launch 1" not in text


def test_rankings_take_a_small_share_of_the_time_of_a_run(monkeypatch):
    now, made = 0.0, []
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now, strftime=time.strftime))

    def rank():
        nonlocal now
        made.append(now)
        now += 0.02
        return ["one"]

    with LiveObserver(Console(file=io.StringIO()), rank) as observer:
        for _ in range(12):
            observer.block_over()
            now += 0.2
    assert made == pytest.approx([0.0, 1.02, 2.04])  # two hundredths of the time until then
