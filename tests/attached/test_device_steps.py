"""Steps and parts go by the clock of the device where events show it; times are those that one H100 showed."""

import pytest
from stored_processes import BEGIN, MS, found_in, part_of, process_lines, sentences_of, step, write

from steptime.diagnosis.rules import script_findings
from steptime.report.attached import run_notes

GPT2 = {"forward": 14.18, "backward": 25.52, "update": 1.5}
HOST = {"input": 0.2, "forward": 5.0, "backward": 7.0, "update": 1.0}


def device_line(number, waited=(0.0, 0.01), regions=GPT2, gaps=None, **more):
    gaps = {"forward>backward": 2.0} if gaps is None else gaps
    length = sum(regions.values()) + sum(gaps.values())
    return {
        "kind": "device",
        "step": number,
        "regions": {name: round(value * MS) for name, value in regions.items()},
        "gaps": {name: round(value * MS) for name, value in gaps.items()},
        "step_ns": round(length * MS),
        "waited_ns": [round(share * length * MS) for share in waited],
        **more,
    }


def host_steps(count=50, gap=0.0, regions=HOST):
    """The host is ahead of the device, and waits for it in a gap: by its clock 50 steps are 5.7 % shorter."""
    found, begin = [], BEGIN
    for number in range(count):
        one = step(number, begin, regions, {"backward>update": gap} if gap else {})
        begin += one["duration_ns"]
        found.append(one)
    return found


def run_of(folder, lines, steps=None):
    steps = host_steps(gap=0.943 * 43.2 - 13.2) if steps is None else steps
    return found_in(write(folder, process_lines(0, 1, steps, lines=lines)), 60_000.0)


def test_a_step_is_as_long_as_the_device_takes_for_it(tmp_path):
    run = run_of(tmp_path, [device_line(number) for number in range(50)])
    assert run.step_s.value == pytest.approx(0.0432, rel=0.005)
    assert run.device.host_step_s == pytest.approx(0.943 * 0.0432, rel=0.005)


def test_parts_are_the_devices_with_the_hosts_beside_them(tmp_path):
    run = run_of(tmp_path, [device_line(number) for number in range(50)])
    forward = part_of(run, "forward")
    assert (forward.time_s.value, forward.host_s) == (pytest.approx(0.01418), pytest.approx(0.005))
    assert sum(part.time_s.value for part in run.parts if part.time_s.value) == pytest.approx(run.step_s.value)


def test_the_loss_between_forward_and_backward_has_a_time(tmp_path):
    run = run_of(tmp_path, [device_line(number) for number in range(50)])
    loss = part_of(run, "forward>backward")
    assert (loss.gap, loss.time_s.value) == (True, pytest.approx(0.002))


def test_a_wait_of_the_host_for_a_busy_device_is_no_finding(tmp_path):
    run = run_of(tmp_path, [device_line(number, waited=(0.0, 0.03)) for number in range(50)])
    assert not {"gaps", "host_limit"} & sentences_of(run).keys()
    assert any("the device worked at least 97 % of the step" in note for note in run_notes(run))


def test_a_device_that_waits_for_the_host_is_the_largest_finding(tmp_path):
    tiny = {"forward": 3.5, "backward": 4.0, "update": 2.5}
    lines = [device_line(n, (0.88, 0.93), tiny, {"forward>backward": 0.3}) for n in range(50)]
    run = run_of(tmp_path, lines, host_steps(regions=tiny))
    assert run.findings[0].kind == "host_limit"
    assert "for 88 % of a step the device had done all it was given" in run.findings[0].sentence


def test_a_device_that_waits_for_input_waits_as_long_as_the_loader_is_asked(tmp_path):
    slow = {**HOST, "input": 60.0}
    lines = [device_line(n, (0.5, 0.6), GPT2, {"update>forward": 50.0, "forward>backward": 2.0}) for n in range(50)]
    run = run_of(tmp_path, lines, host_steps(regions=slow))
    assert part_of(run, "input_wait").time_s.value == pytest.approx(0.050)
    assert "input" in sentences_of(run)


def test_input_that_is_read_while_the_device_works_takes_no_time_of_it(tmp_path):
    slow = {**HOST, "input": 30.0}
    run = run_of(tmp_path, [device_line(number) for number in range(50)], host_steps(regions=slow))
    assert "input_wait" not in {part.name for part in run.parts}


@pytest.mark.parametrize("known", [range(0), range(20), range(3)])
def test_the_hosts_clock_counts_where_few_steps_have_events(tmp_path, known):
    run = run_of(tmp_path, [device_line(number) for number in known])
    assert run.device is None
    assert run.step_s.value == pytest.approx(0.943 * 0.0432, rel=0.005)


def test_a_host_that_keeps_the_device_waiting_is_advised_to_hand_over_more_at_once(tmp_path):
    """Of gpt2_tiny, which took 3.2 times less when it was compiled into CUDA graphs."""
    tiny = {"forward": 3.5, "backward": 4.0, "update": 2.5}
    lines = [device_line(n, (0.88, 0.93), tiny, {"forward>backward": 0.3}) for n in range(50)]
    found = script_findings(run_of(tmp_path, lines, host_steps(regions=tiny)))[0]
    assert found.rule == "own_host"
    assert found.gain.low < 3.2 < found.gain.high
    assert (found.change.startswith("hand over more at once"), bool(found.disproof)) == (True, True)


def test_a_busy_device_is_not_blamed_on_the_host(tmp_path):
    run = run_of(tmp_path, [device_line(number) for number in range(50)])
    assert "own_host" not in {found.rule for found in script_findings(run)}


def with_collections(step_lines, seconds=4e-3, every=5):
    """Return steps of which every fifth has a collection of garbage within its forward pass."""
    for one in step_lines[::every]:
        one["regions"] = {**one["regions"], "collection": round(seconds * 1e9)}
        one["regions"]["forward"] -= one["regions"]["collection"]
        one["collections"] = [1, round(seconds * 1e9)]
    return step_lines


def test_a_collection_of_garbage_while_the_device_works_costs_nothing(tmp_path):
    """The host collects for 4 ms and is 30 ms ahead: the device has work all along."""
    steps = with_collections(host_steps(gap=0.943 * 43.2 - 13.2))
    run = run_of(tmp_path, [device_line(number, waited=(0.0, 0.2)) for number in range(50)], steps)
    assert "garbage_collection" not in {part.name for part in run.parts} | sentences_of(run).keys()


def test_a_collection_of_garbage_counts_as_long_as_the_device_waits(tmp_path):
    """Of 4 ms of the host, the device has nothing to do in 3."""
    lines = [device_line(number) for number in range(50)]
    for number in range(0, 50, 5):
        lines[number] = device_line(number, waited=(3.0 / 46.2, 0.2), gaps={"forward>backward": 5.0})
    run = run_of(tmp_path, lines, with_collections(host_steps(gap=0.943 * 43.2 - 13.2)))
    part = part_of(run, "garbage_collection")
    assert part.time_s.value == pytest.approx(0.003 / 5, rel=0.15)
    assert sum(each.time_s.value for each in run.parts if each.time_s.value) == pytest.approx(run.step_s.value)


def test_several_ranks_are_told_why_their_clocks_are_the_hosts_and_how_long_steps_are_on_devices(tmp_path):
    ranks = []
    for rank, longer in ((0, 0), (1, round(6 * MS))):
        lines = [device_line(number) for number in range(50)]
        lines = [{**line, "step_ns": line["step_ns"] + longer} for line in lines]
        ranks.append(process_lines(rank, 2, host_steps(), lines=lines))
    run = found_in(write(tmp_path, *ranks), 60_000.0)
    assert run.device is None
    assert "what ranks wait for each other is known on these clocks alone" in run.notes[0]
    assert "by devices a step takes 49.2 ms at most, on rank 1" in run.notes[0]


def test_parts_of_steps_of_which_some_are_timed_in_parts_sum_to_the_step(tmp_path):
    lines = [device_line(number, step_ns=43_200_000, cost_ns=72_000) for number in range(50)]
    for line in lines:
        if line["step"] % 4:
            line.update(regions={}, gaps={}, step_ns=43_000_000)
    run = run_of(tmp_path, lines)
    assert sum(part.time_s.value for part in run.parts if part.time_s.value) == pytest.approx(run.step_s.value)
    assert (run.device.parted, run.device.events_s) == (pytest.approx(12, abs=1), pytest.approx(72e-6))
    assert part_of(run, "forward").time_s.value == pytest.approx(0.01418, rel=0.01)
