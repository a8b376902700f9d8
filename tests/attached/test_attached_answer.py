"""The answer fits a screen at every width, and says what its intervals do not know."""

import re

import pytest
from stored_processes import COMMAND, ddp_job, ddp_steps, found_in, process_lines, write

from steptime.attached.latest_steps import latest_attempt, latest_steps
from steptime.attached.memory import memory_now
from steptime.cli.console import PlainConsole
from steptime.cli.page_server import PageServer
from steptime.diagnosis.form import Diagnosis
from steptime.diagnosis.rules import script_findings
from steptime.phases import REST
from steptime.report.advice import script_section
from steptime.report.attached import attached_section, headline, part_rows
from steptime.report.attached_answer import MOST_LINES, AttachedAnswer, _clauses
from steptime.report.terminal import SectionText
from steptime.results.json_form import Interval
from steptime.results.store import Store


def shown(capsys, what, width):
    PlainConsole(width=width).print(what)
    return capsys.readouterr().out


def eventful(folder):
    """A job with a straggler, a gap, a restart, an evaluation and a change of micro-steps."""
    first = [process_lines(rank, 2, ddp_steps(rank, lambda _: [0.0, 15.0], steps=7), ended=False) for rank in range(2)]
    second = []
    for rank in range(2):
        steps = ddp_steps(rank, lambda _: [0.0, 15.0], gap=40.0, transfer=30.0)
        for each in steps:
            each["begin_ns"] += 9_000_000_000
            each["backwards"] = [[time + 9_000_000_000 for time in each["backwards"][0][:3]] + [True]]
            each["micro_steps"] = 2 if each["number"] < 20 else 1
            each["optimizers"] = [each["number"] % 2]
        notes = [{"kind": "note", "text": f"a library that could not be seen, number {number}"} for number in range(5)]
        second.append(process_lines(rank, 2, steps, attempt=1, lines=notes))
    return found_in(write(folder, *first, *second), 60_000.0)


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_the_answer_has_at_most_25_lines(tmp_path, capsys, width):
    text = shown(capsys, AttachedAnswer(differing(tmp_path), ["All of it: steptime report --all DIR"]), width)
    assert len(text.splitlines()) <= MOST_LINES == 25
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", [60, 76, 90, 120, 200])
def test_the_same_is_shown_at_every_width(tmp_path, capsys, width):
    """Findings, rows and notes, which wrap alone."""
    for number, job in enumerate((eventful, differing, several_gaps)):
        run = job(tmp_path / str(number))
        texts = [shown(capsys, AttachedAnswer(run, ["the end"]), each) for each in (80, width)]
        usual, own = (sorted(re.findall(r"\S+", text)) for text in texts)
        assert usual == own


def test_the_first_three_findings_are_shown_on_whatever_screen(tmp_path, capsys):
    run = eventful(tmp_path)
    text = " ".join(shown(capsys, AttachedAnswer(run, ["a last line"] * 9), 80).split())
    assert len(run.findings) > 3
    assert [each.kind for each in run.findings[:3] if each.sentence not in text] == []


@pytest.mark.parametrize("base_s", [0.9, 0.0009])
def test_each_part_has_the_unit_that_suits_it(tmp_path, base_s):
    run = with_parts(tmp_path, base_s, 7.1e-4)
    times = {name: time for name, time, _, _ in part_rows(run, 4)}
    assert times["input to b"] == "710 µs (639 to 781)"


def test_the_bound_of_a_time_stands_beside_that_of_its_share(tmp_path):
    run = with_parts(tmp_path, 0.012)
    open_part = run.parts[-1].model_copy(update={"time_s": Interval(0.012, 0.001, 0.03)})
    share = open_part.share
    rows = list(part_rows(run.model_copy(update={"parts": [*run.parts[:-1], open_part]}), 4))
    time, shown_share = next((time, share) for name, time, share, _ in rows if name == "input to a")
    assert time == "at most 30.0 ms"
    assert float(shown_share.removeprefix("at most ").removesuffix(" %")) == pytest.approx(100 * share * 2.5, rel=0.01)


@pytest.mark.parametrize(("delayed", "stated"), [(0.19, []), (0.54, ["54"])])
def test_the_answer_and_the_advice_state_how_long_processes_were_kept_from_running(tmp_path, capsys, delayed, stated):
    processes = [process_lines(rank, 2, ddp_steps(rank, lambda _: [0.0, 15.0])) for rank in range(2)]
    for each in processes:
        each[-1]["delayed_ns"] = round(delayed * (each[-1]["at_ns"] - each[0]["begin_ns"]))
    run = found_in(write(tmp_path, *processes), 60_000.0)
    advice = script_section(run, Diagnosis(findings=script_findings(run)))
    for what in (AttachedAnswer(run), SectionText([advice]), SectionText([attached_section(run)])):
        text = " ".join(shown(capsys, what, 80).split())
        assert re.findall(r"kept a process from running for (\d+) % of the time", text) == stated


@pytest.mark.parametrize("lines", [1, 3, 5, 7])
def test_no_finding_takes_the_row_of_a_large_gap(tmp_path, capsys, lines):
    text = shown(capsys, AttachedAnswer(eventful(tmp_path), ["a last line"] * lines), 80)
    assert "forward to backward" in text


def test_a_narrow_terminal_breaks_no_number(tmp_path, capsys):
    text = shown(capsys, AttachedAnswer(ddp_job(tmp_path, lambda number: [0.0, 15.0 + 3.0 * (number % 2)])), 44)
    assert max(map(len, text.splitlines())) <= 44
    assert re.search(r"forward +\d+\.\d+ ms \(\d+\.\d+ to \d+\.\d+\)\n", text)


def differing(folder):
    """A job whose ranks differ in a phase, with a line of the script beside another one."""
    return ddp_job(folder, lambda _: [0.0, 15.0])


def several_gaps(folder):
    return with_parts(folder, 0.02, 0.01)


@pytest.mark.parametrize("width", [76, 80, 84, 90])
@pytest.mark.parametrize("job", [eventful, differing])
def test_what_stands_beside_a_part_is_whole_at_every_width(tmp_path, capsys, job, width):
    run = job(tmp_path)
    text = shown(capsys, AttachedAnswer(run), width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    notes = [row[3] for row in part_rows(run, 0) if row[3]]
    words = " ".join(text.split())
    assert notes
    assert [note for note in notes if re.split("[,;] ", note)[0] not in words] == []


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (64, "up to 16.1 ms on rank 1, from 8.33 ms; step.py:9 train, torch: x"),
        (57, "up to 16.1 ms on rank 1, from 8.33 ms; step.py:9 train"),
        (40, "up to 16.1 ms on rank 1, from 8.33 ms"),
        (30, "up to 16.1 ms on rank 1"),
        (12, "up to 16.1 ms on rank 1"),
    ],
)
def test_a_note_loses_whole_clauses_from_its_end(width, text):
    note = "up to 16.1 ms on rank 1, from 8.33 ms; step.py:9 train, torch: x"
    assert _clauses(note, width) == text


def test_what_is_largest_comes_first(tmp_path, capsys):
    text = shown(capsys, AttachedAnswer(ddp_job(tmp_path, lambda _: [0.0, 45.0])), 120)
    largest = next(line for line in text.splitlines() if line.startswith("Largest"))
    assert "for rank 1; its forward takes 45 ms longer" in largest


def test_the_answer_says_that_it_knows_one_run_alone(tmp_path, capsys):
    text = shown(capsys, AttachedAnswer(ddp_job(tmp_path, lambda _: [0.0, 0.0])), 120)
    assert "intervals within this run: another run may differ by more" in text


def test_the_section_of_a_report_has_every_part_and_use(tmp_path, capsys):
    run = eventful(tmp_path)
    text = " ".join(shown(capsys, SectionText([attached_section(run)]), 160).split())
    assert "between forward and backward" in text
    assert "restarts" in text
    assert all(finding.sentence in text for finding in run.findings)


def with_parts(folder, *lengths_s):
    """A job with gaps of these lengths, alike on both ranks."""
    run = ddp_job(folder, lambda _: [0.0, 15.0], gap=4.0)
    gap = next(part for part in run.parts if part.gap)
    gaps = [
        gap.model_copy(
            update={
                "name": f"input>{'ab'[number]}",
                "time_s": Interval(length, 0.9 * length, 1.1 * length),
                "share": length / (run.step_s.value or 1.0),
                "ranks_s": [length, length],
            }
        )
        for number, length in enumerate(lengths_s)
    ]
    parts = [part for part in run.parts if not part.gap and part.name != REST]
    return run.model_copy(update={"parts": [*parts, *gaps]})


@pytest.mark.parametrize(
    ("lengths_s", "row"),
    [
        ((2e-7, 3e-7), "2 short parts below 0.0590 ms below 0.1 % - - between input and a, between input and b"),
        ((3e-5, 3e-5), "2 short parts 0.0600 ms 0.102 % 0.0600 ms 0.0600 ms between input and a, between input and b"),
    ],
)
def test_parts_next_to_nothing_share_a_row(tmp_path, capsys, lengths_s, row):
    text = shown(capsys, SectionText([attached_section(with_parts(tmp_path, *lengths_s))]), 160)
    assert row in " ".join(text.split())


@pytest.mark.parametrize("lengths_s", [(3e-7, 3e-4), (3e-4, 3e-4)])
def test_a_part_alone_next_to_nothing_has_its_row(tmp_path, capsys, lengths_s):
    text = shown(capsys, SectionText([attached_section(with_parts(tmp_path, *lengths_s))]), 160)
    assert "short parts" not in text
    assert "between input and a" in text


def test_a_part_that_is_long_on_one_rank_has_its_row(tmp_path, capsys):
    run = with_parts(tmp_path, 2e-7, 3e-7)
    late = run.parts[-1].model_copy(update={"ranks_s": [0.0, 1e-3]})
    whole = run.model_copy(update={"parts": [*run.parts[:-1], late]})
    assert "short parts" not in shown(capsys, SectionText([attached_section(whole)]), 160)


def test_a_look_at_a_run_shows_its_latest_step_and_the_waiting(tmp_path):
    """As the live line does, from the ends of files that are being written."""
    write(tmp_path, *(process_lines(rank, 2, ddp_steps(rank, lambda _: [0.0, 20.0], steps=300)) for rank in range(2)))
    file = tmp_path / "attached" / "host-1.jsonl"
    file.write_bytes(file.read_bytes()[:-150])
    expected = r"step 29\d, 60 ms, 17 % of it waiting; slowest now: rank 1, 20 ms a step, longer in forward"
    assert re.fullmatch(expected, latest_steps(latest_attempt(tmp_path)))


def test_the_slowest_rank_now_is_that_of_the_latest_steps(tmp_path):
    """However long another one was it before."""
    ranks = [ddp_steps(rank, lambda number: [0.0, 20.0] if number < 200 else [20.0, 0.0], 240) for rank in range(2)]
    write(tmp_path, *(process_lines(rank, 2, steps, ended=False) for rank, steps in enumerate(ranks)))
    assert "slowest now: rank 0, 20 ms a step" in latest_steps(latest_attempt(tmp_path))


def test_of_ranks_that_are_late_in_turns_none_is_the_slowest_now(tmp_path):
    ranks = [ddp_steps(rank, lambda number: [20.0, 0.0] if number % 2 else [0.0, 20.0], 240) for rank in range(2)]
    write(tmp_path, *(process_lines(rank, 2, steps, ended=False) for rank, steps in enumerate(ranks)))
    assert latest_steps(latest_attempt(tmp_path)).endswith("; no rank is shown to be slowest")


@pytest.mark.parametrize(
    ("world", "text"),
    [
        (2, "rank 0 1 GiB, rank 1 2 GiB; reserved on devices: rank 0 4 GiB, rank 1 5 GiB"),
        (9, "rank 0 1 GiB to rank 8 9 GiB; reserved on devices: rank 0 4 GiB to rank 8 12 GiB"),
    ],
)
def test_the_memory_of_each_rank_now_is_that_of_its_latest_look(tmp_path, world, text):
    def look(held):
        devices = {"0": [0, (held + 3) << 30, 80 << 30]}
        return {"kind": "memory", "step": 1, "at_ns": 1, "resident": held << 30, "devices": devices}

    looks = [[look(20), look(rank + 1)] for rank in range(world)]
    steps = [ddp_steps(rank, lambda _: [0.0] * world, steps=9) for rank in range(world)]
    write(tmp_path, *(process_lines(rank, world, steps[rank], lines=looks[rank]) for rank in range(world)))
    assert memory_now(latest_attempt(tmp_path)) == text


def test_the_page_of_a_run_that_goes_on_has_the_slowest_rank_and_memory(tmp_path):
    store = Store.create(tmp_path / "results", study_text="", study_json={"name": "own script"})
    header = {"command": ["python", "train.py"], "started_at": "2026-01-01T00:00:00+00:00", "boot": "boot-0"}
    store.put("attached", {**header, "begin_ns": COMMAND, "wall_minus_monotonic_ns": 0})
    memory = {"kind": "memory", "step": 1, "at_ns": 1, "resident": 1 << 30}
    steps = [ddp_steps(rank, lambda _: [0.0, 20.0]) for rank in range(2)]
    write(store.path, *(process_lines(rank, 2, steps[rank], lines=[memory], ended=False) for rank in range(2)))
    with PageServer(store.path) as server:
        page = server.page().decode()
    assert "slowest now: rank 1, 20 ms a step, longer in forward. Memory now: rank 0 1 GiB, rank 1 1 GiB." in page


def test_a_look_before_the_first_step_shows_nothing(tmp_path):
    assert latest_steps(latest_attempt(tmp_path)) is None


LENGTHS = {
    "a narrow mean": ((0.5, 0.4, 0.6), (0.3, 0.1, 0.9), "a step takes 500 ms (400 to 600)"),
    "a settled median": ((0.5, 0.1, 0.9), (0.3, 0.2, 0.4), "a step takes 300 ms (200 to 400) (median; the mean is"),
    "a wide mean and an open median": ((0.5, 0.3, 1.1), (0.3, 0.1, 0.9), "a step takes 500 ms (300 to 1100)"),
    "an open mean below an open median": ((0.5, 0.1, 0.8), (0.3, 0.1, 0.9), "a step takes at most 800 ms"),
    "nothing settled": ((0.5, 0.1, 1.1), (0.3, 0.1, 0.9), "a step takes at most 900 ms (median; the mean is at most"),
}


@pytest.mark.parametrize(("mean", "median", "text"), LENGTHS.values(), ids=LENGTHS)
def test_a_step_is_its_mean_or_its_median_whichever_is_settled(tmp_path, mean, median, text):
    run = ddp_job(tmp_path, lambda _: [0.0, 15.0])
    own = run.model_copy(update={"step_s": Interval(*mean), "median_step_s": Interval(*median)})
    assert text in headline(own)
