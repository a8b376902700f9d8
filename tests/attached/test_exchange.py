"""Waiting and transfer are told apart by who came last, and somebody is blamed only where that is shown."""

import random

import pytest
from stored_processes import BEGIN, MS, ddp_job, ddp_steps, found_in, part_of, process_lines, sentences_of, step, write


def late_rank_1(_number):
    return [0.0, 15.0]


def test_the_rank_whose_last_gradient_comes_first_waits_for_the_other(tmp_path):
    run = ddp_job(tmp_path, late_rank_1)
    assert part_of(run, "sync_wait").ranks_s == pytest.approx([0.015, 0.0])


def test_transfer_begins_with_the_latest_last_gradient(tmp_path):
    run = ddp_job(tmp_path, late_rank_1)
    assert part_of(run, "comm_exposed").ranks_s == pytest.approx([0.004, 0.004])


def test_backward_is_what_a_rank_computes(tmp_path):
    run = ddp_job(tmp_path, late_rank_1)
    assert part_of(run, "backward").ranks_s == pytest.approx([0.008, 0.008])


def test_a_lasting_straggler_is_named_with_the_part_that_is_longer(tmp_path):
    run = ddp_job(tmp_path, late_rank_1)
    assert (run.waited_for.rank, run.waited_for.part) == (1, "forward")
    assert run.waited_for.part_s == pytest.approx(0.015)
    assert "for rank 1; its forward takes 15 ms longer" in sentences_of(run)["straggler"]


def test_nobody_is_blamed_where_all_are_late_in_turn(tmp_path):
    stream = random.Random(5)
    late = [stream.randrange(4) for _ in range(60)]
    run = ddp_job(tmp_path, lambda number: [15.0 * (late[number] == rank) for rank in range(4)], world=4, steps=60)
    assert run.waited_for.rank is None
    assert "now for one of them, now for another" in sentences_of(run)["waiting"]


def test_a_pass_that_is_not_synchronised_has_no_waiting(tmp_path):
    processes = []
    for rank in range(2):
        steps = ddp_steps(rank, late_rank_1)
        for each in steps:
            begin = each["backwards"][0][0]
            each["backwards"].insert(0, [begin - 2 * MS, begin - MS, begin - MS, False])
            each["micro_steps"] = 2
        processes.append(process_lines(rank, 2, steps))
    run = found_in(write(tmp_path, *processes))
    assert part_of(run, "sync_wait").ranks_s == pytest.approx([0.015, 0.0])


def hooked(step):
    """Add the collective of a hook of DDP, behind the last gradient of the pass."""
    ((_, last, end, _),) = step["backwards"]
    took = end - last - MS
    regions = {**step["regions"], "backward": step["regions"]["backward"] - took, "collective": took}
    calls = {"collectives": {"backward:allreduce": [1, 64, took]}, "intervals": [["allreduce", 64, last, last + took]]}
    return {**step, "regions": regions, **calls}


def test_the_collective_of_a_hook_of_ddp_is_counted_once(tmp_path):
    lines = [process_lines(rank, 2, map(hooked, ddp_steps(rank, late_rank_1))) for rank in range(2)]
    run = found_in(write(tmp_path, *lines))
    assert {name: part_of(run, name).ranks_s for name in ("backward", "sync_wait", "comm_exposed", "residual")} == {
        "backward": pytest.approx([0.008, 0.008]),
        "sync_wait": pytest.approx([0.015, 0.0]),
        "comm_exposed": pytest.approx([0.004, 0.004]),
        "residual": pytest.approx([0.0, 0.0], abs=1e-9),
    }


def buffered(step, rank, late):
    """Add DDP's broadcast of buffers before the forward pass: both ranks leave it together."""
    took = round((max(late) - late[rank] + 2.0) * MS)
    ((begin, last, end, synchronised),) = step["backwards"]
    at = step["begin_ns"] + round((20.0 + late[rank]) * MS)
    regions = {**step["regions"], "input": step["regions"]["input"] + round(late[rank] * MS), "collective": took}
    shift = took + round(late[rank] * MS)
    return {
        **step,
        "duration_ns": step["duration_ns"] + shift,
        "regions": regions,
        "backwards": [[begin + shift, last + shift, end + shift, synchronised]],
        "collectives": {"forward:_broadcast_coalesced": [1, 64, took]},
        "intervals": [["_broadcast_coalesced", 64, at, at + took]],
    }


@pytest.mark.parametrize("slow", [0, 1])
def test_who_comes_late_to_the_broadcast_of_buffers_is_waited_for(tmp_path, slow):
    late = [80.0 * (rank == slow) for rank in range(2)]
    lines = []
    for rank in range(2):
        steps, begin = [], BEGIN
        for each in ddp_steps(rank, lambda _: [0.0, 0.0]):
            moved = begin - each["begin_ns"]
            ((first, last, end, synchronised),) = each["backwards"]
            passes = [[first + moved, last + moved, end + moved, synchronised]]
            steps.append(buffered({**each, "begin_ns": begin, "backwards": passes}, rank, late))
            begin += steps[-1]["duration_ns"]
        lines.append(process_lines(rank, 2, steps))
    run = found_in(write(tmp_path, *lines))
    assert run.waited_for.rank == slow
    assert run.waited_for.part == "input_wait"
    assert part_of(run, "sync_wait").ranks_s == pytest.approx([80e-3 * (rank != slow) for rank in range(2)])
    assert part_of(run, "forward").ranks_s == pytest.approx([0.005, 0.005])


def collective_steps(rank, late_ms, steps=40, transfer=6.0):
    """Steps of a job whose collectives Python starts: one all-gather, waited for."""
    found, begin = [], BEGIN
    for number in range(steps):
        at = begin + round((5.0 + late_ms[rank]) * MS)
        wait = max(late_ms) - late_ms[rank] + transfer
        begin_wait, end_wait = at + MS, at + round((1.0 + wait) * MS)
        calls = [["allgather", 4096, at, begin_wait], ["wait", 0, begin_wait, end_wait]]
        regions = {"forward": 5.0 + late_ms[rank], "collective": 1.0 + wait, "update": 2.0}
        counts = {"forward:allgather": [1, 4096, MS], "forward:wait": [1, 0, end_wait - begin_wait]}
        one = step(number, begin, regions, intervals=calls, collectives=counts)
        begin += one["duration_ns"]
        found.append(one)
    return found


def test_one_waits_in_a_collective_until_the_last_rank_has_started_it(tmp_path):
    late = [0.0, 12.0]
    processes = [process_lines(rank, 2, collective_steps(rank, late)) for rank in range(2)]
    run = found_in(write(tmp_path, *processes))
    # The call itself takes 1 ms, during which the first rank waits already.
    assert part_of(run, "sync_wait").ranks_s == pytest.approx([0.012, 0.0])
    assert part_of(run, "comm_exposed").ranks_s == pytest.approx([0.007, 0.007])
    assert run.waited_for.rank == 1


def test_collectives_are_counted_with_their_bytes(tmp_path):
    processes = [process_lines(rank, 2, collective_steps(rank, [0.0, 0.0])) for rank in range(2)]
    run = found_in(write(tmp_path, *processes))
    gathered = run.collectives[0]
    assert (gathered.region, gathered.kind, gathered.count, gathered.bytes) == ("forward", "allgather", 1.0, 4096.0)


def test_steps_without_all_their_collectives_are_left_out(tmp_path):
    processes = []
    for rank in range(2):
        steps = collective_steps(rank, [0.0, 12.0])
        for each in steps:
            if each["number"] % 8:
                each["intervals"] = each["intervals"][:1]
        processes.append(process_lines(rank, 2, steps))
    run = found_in(write(tmp_path, *processes))
    assert run.steps == 5
    assert part_of(run, "sync_wait").ranks_s == pytest.approx([0.012, 0.0])


REFUSALS = {
    "blind": ({"flags": ["blind"]}, "no update was seen"),
    "a CUDA graph": ({"regions": {"replay": 40 * MS}}, "CUDA graph"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_waiting_is_refused_with_the_reason(tmp_path, name):
    changes, reason = REFUSALS[name]
    processes = []
    for rank in range(2):
        steps = [{**each, **changes} for each in ddp_steps(rank, late_rank_1)]
        processes.append(process_lines(rank, 2, steps))
    run = found_in(write(tmp_path, *processes))
    waiting = part_of(run, "sync_wait")
    assert waiting.time_s.value is None
    assert reason in waiting.reason
    assert run.waited_for is None


def test_waiting_of_steps_that_are_compiled_whole_is_null_and_its_reason_names_that(tmp_path):
    graphs = {"kind": "graphs", "frames": 3, "operations": 20, "graphs": 3, "breaks": 0, "weights": 0}
    steps = [[{**each, "flags": ["blind"]} for each in ddp_steps(rank, late_rank_1)] for rank in range(2)]
    run = found_in(write(tmp_path, *(process_lines(rank, 2, steps[rank], lines=[graphs]) for rank in range(2))))
    waiting = part_of(run, "sync_wait")
    assert (waiting.time_s.value, run.waited_for) == (None, None)
    assert "no update was seen, as in a step that torch.compile compiles whole" in waiting.reason


def sending_steps(orders, rank, late_ms, steps=40):
    """Steps that send and receive, in an order of each rank, behind the backward pass or (first in it) before."""
    found, begin = [], BEGIN
    for number in range(steps):
        early = orders[rank][0] == "early"
        kinds = [kind for kind in orders[rank] if kind != "early"]
        forward = 5.0 + late_ms[rank]
        wait = max(late_ms) - late_ms[rank] + 4.0
        calls, at = [], begin + round((forward + (0.0 if early else 8.0)) * MS)
        for index, kind in enumerate(kinds):
            ends = at + round((wait if index == 0 else 1.0) * MS)
            calls.append([kind, 4096, at, ends])
            at = ends
        backward = begin + round((forward + (wait + len(kinds) - 1 if early else 0.0)) * MS)
        passes = [[backward, backward + 8 * MS, backward + 8 * MS, None]]
        regions = {"forward": forward, "collective": wait + len(kinds) - 1, "backward": 8.0, "update": 2.0}
        counts = {f"none:{kind}": [kinds.count(kind), 4096, MS] for kind in set(kinds)}
        one = step(number, begin, regions, intervals=calls, collectives=counts, backwards=passes)
        begin += one["duration_ns"]
        found.append(one)
    return found


NEIGHBOURS = {
    "a ring by hand": [["send", "recv"], ["send", "recv"]],
    "ring attention": [["early", "send", "recv"], ["early", "send", "recv"]],
    "gossip that cannot deadlock": [["send", "recv"], ["recv", "send"]],
    "waits behind": [["recv", "send", "wait"], ["recv", "send", "wait"]],
}


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_ranks_that_send_to_one_another_keep_their_straggler(tmp_path, name):
    processes = [process_lines(rank, 2, sending_steps(NEIGHBOURS[name], rank, [0.0, 12.0])) for rank in range(2)]
    run = found_in(write(tmp_path, *processes))
    assert part_of(run, "sync_wait").ranks_s == pytest.approx([0.012, 0.0], abs=0.001)
    assert run.waited_for.rank == 1
    assert part_of(run, "comm_exposed").time_s.value > 0.0


@pytest.mark.parametrize("stages", [2, 3])
def test_stages_of_a_pipeline_are_not_split(tmp_path, stages):
    orders = [["early", "send", "recv"], *[["early", "recv", "send"]] * (stages - 1)]
    late = [0.0] * stages
    processes = [process_lines(rank, stages, sending_steps(orders, rank, late)) for rank in range(stages)]
    run = found_in(write(tmp_path, *processes))
    assert "as a pipeline" in part_of(run, "sync_wait").reason


def two_hosts(folder, clock_ms, lateness, **more):
    processes = [
        process_lines(0, 2, ddp_steps(0, lateness, **more)),
        process_lines(1, 2, ddp_steps(1, lateness, clock_ms=clock_ms, **more), boot="boot-1"),
    ]
    return found_in(write(folder, *processes))


def test_clocks_of_hosts_are_joined_by_what_must_come_first(tmp_path):
    """Each rank is the last at times, so that both bounds are as narrow as the transfer."""
    run = two_hosts(tmp_path, 300.0, lambda number: [60.0, 0.0] if number % 4 == 0 else [0.0, 30.0])
    assert run.clock_uncertainty_s == pytest.approx(0.004)
    assert part_of(run, "sync_wait").ranks_s == pytest.approx([0.0225, 0.015], abs=0.004)


def test_nobody_is_blamed_inside_the_bounds_of_the_clocks(tmp_path):
    """A rank that is always 15 ms late cannot be told from a clock that is 15 ms ahead."""
    run = two_hosts(tmp_path, 300.0, late_rank_1, transfer=20.0)
    assert "clocks of hosts are known to" in part_of(run, "sync_wait").reason
    assert run.waited_for is None


def test_clocks_that_drift_are_refused(tmp_path):
    steps = ddp_steps(1, late_rank_1)
    for each in steps:
        shift = each["number"] * 2 * MS
        each["backwards"] = [[time + shift for time in each["backwards"][0][:3]] + [True]]
    processes = [process_lines(0, 2, ddp_steps(0, late_rank_1)), process_lines(1, 2, steps, boot="boot-1")]
    run = found_in(write(tmp_path, *processes))
    assert "drift" in part_of(run, "sync_wait").reason


def test_a_rank_that_is_always_late_is_named_across_clocks(tmp_path):
    """By the ends of DDP's exchanges, which need the gradients of all."""
    run = two_hosts(tmp_path, 70_000.0, late_rank_1)
    assert (run.waited_for.rank, run.waited_for.hosts) == (1, ["host-boot-1"])
    assert run.clock_uncertainty_s == pytest.approx(0.004)


def test_clocks_that_drift_as_ntp_sets_them_are_followed(tmp_path):
    steps = ddp_steps(1, late_rank_1, steps=400)
    for each in steps:
        times = [round(time * 1.0002) for time in each["backwards"][0][:3]]
        each["backwards"] = [[*times, True]]
    processes = [process_lines(0, 2, ddp_steps(0, late_rank_1, steps=400)), process_lines(1, 2, steps, boot="boot-1")]
    run = found_in(write(tmp_path, *processes))
    assert run.waited_for.rank == 1
    assert part_of(run, "sync_wait").ranks_s == pytest.approx([0.015, 0.0], abs=0.001)


def test_the_start_of_a_collective_that_is_waited_for_later_bounds_no_clock(tmp_path):
    late = [0.0, 12.0]
    steps = collective_steps(1, late)
    for each in steps:
        each["intervals"] = [
            [kind, size, begin + 7000 * MS, end + 7000 * MS] for kind, size, begin, end in each["intervals"]
        ]
    processes = [process_lines(0, 2, collective_steps(0, late)), process_lines(1, 2, steps, boot="boot-1")]
    assert "drift" not in str(part_of(found_in(write(tmp_path, *processes)), "sync_wait").reason)
