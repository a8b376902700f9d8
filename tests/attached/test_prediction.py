"""One attached run and a link predict other numbers of workers, or say which measurement is missing."""

import json
import math
import re
from itertools import pairwise

import pytest
from program import process
from stored_processes import COMMAND, MS, ddp_steps, found_in, process_lines, step, write
from typer.testing import CliRunner

from steptime.analysis.message_times import Fit, NetRow
from steptime.attached.form import RankArithmetic, Throughput, TrainedAmount
from steptime.cli.app import app
from steptime.document.section import SectionTable, Sentences
from steptime.fitting.attached_profile import attached_profile, read_attached_profile, write_attached_profile
from steptime.fitting.fit import USUAL_LAUNCH_SPREAD
from steptime.fitting.profile import NetLink
from steptime.plain_file import PlainFolder
from steptime.predict.attached import attached_ratios, predict_attached, refused_changes
from steptime.report.forecasts.predictions import script_section
from steptime.results.attached_files import read_attached
from steptime.results.gpu_windows import RECORDS
from steptime.results.json_form import Interval
from steptime.results.store import Store
from steptime.scaling.predicted_knees import attached_knees

MIB = 1 << 20
RATE, START_S = 1e9, 1e-4
GRADIENTS = {
    "kind": "gradients",
    "bytes": 4 * MIB,
    "roots": {"Net": 1},
    "ready": [[MIB, 2 * MS], [MIB, 4 * MS], [2 * MIB, 8 * MS]],
    "backward_ns": 12 * MS,
}
BUCKETS = {"kind": "buckets", "bytes": [MIB, 3 * MIB], "backend": "gloo"}


def row(workers=4, launcher="local", back_end="gloo"):
    """A link of 1 GB/s and 0.1 ms a step, by an all-reduce over so many workers."""
    fit = Fit(
        start_s=Interval(START_S * 2 * (workers - 1), None, None),
        latencies_per_step=Interval(None, None, None),
        bandwidth_bytes_per_s=Interval(RATE, None, None),
        worst_error=0.0,
        worst_bytes=MIB,
    )
    return NetRow(
        back_end=back_end,
        framework="pytorch",
        framework_version=None,
        operation="allreduce",
        workers=workers,
        servers=0,
        launcher=launcher,
        cluster=None,
        steps=2.0 * (workers - 1),
        volume=2.0 * (workers - 1) / workers,
        launches=3,
        failed_launches=0,
        wrong_launches=0,
        checks=1,
        wrong=0,
        status="ok",
        reason=None,
        interval_over="launches",
        level=0.95,
        alpha_s=Interval(None, None, None),
        sizes=[],
        fit=fit,
        least_squares=None,
        flags=[],
        received_bytes=None,
    )


def transfer_ms(workers):
    """What the last bucket of 3 MiB takes in a ring, when it is ready at the end of the pass."""
    return 1e3 * (2 * (workers - 1) * START_S + 2 * (workers - 1) / workers * 3 * MIB / RATE)


def profile_of(folder, late_ms=0.0, rows=None, cores=64, **more):
    folder.mkdir(exist_ok=True)
    processes = []
    for rank in range(2):
        steps = ddp_steps(rank, lambda _: [0.0, late_ms], transfer=transfer_ms(2), **more)
        processes.append(process_lines(rank, 2, steps, lines=[GRADIENTS, BUCKETS]))
    run = found_in(write(folder, *processes))
    files = read_attached(PlainFolder(folder), folder / RECORDS)
    return attached_profile(run, files, [row(launcher="ssh")] if rows is None else rows, cores)


def test_the_measured_number_of_workers_is_predicted_as_measured(tmp_path):
    found = predict_attached(profile_of(tmp_path), [2])[0]
    assert found.step_s.value == pytest.approx(36e-3 + transfer_ms(2) * 1e-3, rel=0.01)
    assert found.extrapolation == 1.0


def test_transfer_grows_as_the_ring_over_the_link_does(tmp_path):
    found = predict_attached(profile_of(tmp_path), [4, 8])
    assert [each.exposed_s for each in found] == pytest.approx([transfer_ms(4) / 1e3, transfer_ms(8) / 1e3], rel=0.01)


def test_one_worker_neither_sends_nor_waits(tmp_path):
    found = predict_attached(profile_of(tmp_path, late_ms=15.0), [1])[0]
    assert (found.exposed_s, found.waiting_s, found.efficiency) == (0.0, 0.0, 1.0)


def test_all_but_one_wait_for_the_one_that_is_always_slow(tmp_path):
    found = predict_attached(profile_of(tmp_path, late_ms=15.0), [2, 8])
    assert [each.waiting_s for each in found] == pytest.approx([0.0075, 0.015 * 7 / 8], rel=0.01)


def test_intervals_widen_with_the_distance_from_what_was_measured(tmp_path):
    found = predict_attached(profile_of(tmp_path, late_ms=15.0), [2, 16, 256])
    widths = [(each.step_s.high - each.step_s.low) / each.step_s.value for each in found]
    assert widths[0] < widths[1] < widths[2]


def test_the_interval_of_what_was_measured_holds_how_launches_differ(tmp_path):
    step = predict_attached(profile_of(tmp_path), [2])[0].step_s
    assert step.high / step.low > math.exp(2 * 1.64 * USUAL_LAUNCH_SPREAD)


def test_more_workers_are_compared_with_fewer_for_the_same_samples(tmp_path):
    profile = profile_of(tmp_path, late_ms=15.0)
    found = predict_attached(profile, [1, 4, 16])
    ratios = attached_ratios(profile, found)

    assert [ratio.workers for ratio in ratios] == [(1, 4), (4, 16)]
    for ratio, (fewer, more) in zip(ratios, pairwise(found), strict=True):
        grows = more.workers / fewer.workers
        ends = (more.step_s.high / more.step_s.low) * (fewer.step_s.high / fewer.step_s.low)
        launches = math.exp(2 * 1.64 * math.sqrt(2) * USUAL_LAUNCH_SPREAD)
        assert ratio.time.value == pytest.approx(more.step_s.value / fewer.step_s.value / grows)
        assert ratio.worker_time.high == pytest.approx(grows * ratio.time.high)
        assert 0.95 * launches < ratio.time.high / ratio.time.low < ends


def test_what_is_refused_is_compared_with_nothing(tmp_path):
    profile = profile_of(tmp_path, rows=[row(workers=4)])
    assert [each.workers for each in attached_ratios(profile, predict_attached(profile, [2, 4, 8]))] == [(2, 4)]
    without = profile_of(tmp_path / "none", rows=[])
    assert attached_ratios(without, predict_attached(without, [2, 4])) == []


def test_the_answer_about_a_script_has_what_more_workers_bring(tmp_path):
    write_attached_profile(profile_of(tmp_path), tmp_path / "profile.json")
    said = " ".join(process("predict", "profile.json", "--workers", "2,8", cwd=tmp_path).stdout.split())
    assert re.search(r"8 workers take 0\.\d+x .* the time of 2, for \d\.\d+x .* the worker hours", said)


def test_messages_that_one_worker_never_sent_widen_the_interval_more_than_further_workers(tmp_path):
    alone = profile_of(tmp_path).model_copy(update={"workers": 1, "computing_s": 1e-4, "backward_s": 1e-4})
    found = [predict_attached(each, [4])[0].step_s for each in (alone, alone.model_copy(update={"workers": 2}))]
    assert found[0].high / found[0].value > found[1].high / found[1].value


REFUSALS = {
    "no link": ({"rows": []}, 4, "steptime net gloo"),
    "a link of another back end": ({"rows": [row(back_end="mpi", launcher="ssh")]}, 4, "steptime net gloo"),
    "more than the link had on one host": ({"rows": [row(workers=4)]}, 8, "at most 4 on one host"),
    "more than the cores": (
        {"rows": [row(workers=8)], "cores": 2},
        4,
        "how many threads each keeps busy is not on record",
    ),
    "a link that is not that of the run": ({"rows": [row(launcher="ssh")], "slow": True}, 4, "not the link of the run"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_the_data_does_not_support_is_refused_with_what_would_help(tmp_path, name):
    settings, workers, said = REFUSALS[name]
    profile = profile_of(tmp_path, **{key: value for key, value in settings.items() if key != "slow"})
    if "slow" in settings:
        profile = profile.model_copy(update={"exposed_s": 50.0 * profile.exposed_s})
    found = predict_attached(profile, [workers])[0]
    assert found.step_s is None
    assert said in found.refused


@pytest.mark.parametrize(("measured", "workers"), [(2, 8), (2, 7), (1, 16), (4, 64)])
def test_the_commands_that_a_refusal_names_can_be_run_as_they_are(tmp_path, measured, workers):
    profile = profile_of(tmp_path, rows=[row(workers=4)]).model_copy(update={"workers": measured})
    [refused] = predict_attached(profile, [workers])
    changes = refused_changes(profile, ["interconnect.bandwidth=10Gbit/s"], [workers])[0]
    commands = re.findall(r"steptime (net [^,;()]*?-o) RESULTS", f"{refused.refused} {changes}")
    assert len(commands) == 3
    for command in commands:
        result = CliRunner().invoke(app, [*command.split(), str(tmp_path / "results"), "--dry-run"])
        assert result.exit_code == 0, (command, result.output)
        assert f" {workers} " in result.stdout
        assert ("emulated hosts" in result.stdout) == ("emulated" in command)


EMULATED = {"hosts": [{"bandwidth_bits_per_s": 10e9}] * 4, "delay_s": 0.0}


def test_what_was_timed_between_hosts_is_no_link_of_one_host(tmp_path):
    between = row(workers=8, launcher="emulated").model_copy(update={"cluster": EMULATED})
    profile = profile_of(tmp_path, rows=[row(workers=2), row(workers=4), between])
    assert (profile.link.workers, profile.link.between_hosts) == (4, False)
    found = predict_attached(profile, [1, 2, 4, 8, 16])
    assert [each.between_hosts for each in found] == [False, False, False, True, True]
    assert [each.over for each in found] == [
        "",
        "on one host, gloo at 8 Gbit/s",
        "on one host, gloo at 8 Gbit/s",
        "on 4 hosts of 2, gloo at 8 Gbit/s (timed with 8 workers on 4 hosts, emulated with links of 10 Gbit/s)",
        "on 8 hosts of 2, gloo at 8 Gbit/s (timed with 8 workers on 4 hosts, emulated with links of 10 Gbit/s)",
    ]
    texts = [
        text for part in script_section(profile, found, "").parts if isinstance(part, Sentences) for text in part.texts
    ]
    assert texts[0].startswith("Hosts and links: 2 and 4 workers on one host, ")
    assert "; 8 workers on 4 hosts of 2, " in texts[0]


def test_the_first_step_to_further_hosts_widens_the_interval_and_ends_the_knee(tmp_path):
    between = row(workers=8, launcher="emulated").model_copy(update={"cluster": EMULATED})
    profile = profile_of(tmp_path, rows=[row(workers=4), between])
    [here, there] = [step.step_s.high / step.step_s.low for step in predict_attached(profile, [4, 8])]
    assert there > here
    assert {knee.measure: knee.searched_to for knee in attached_knees(profile)} == {"efficiency": 4, "doubling": 2}


def test_real_hosts_are_preferred_to_emulated_ones(tmp_path):
    emulated = row(workers=16, launcher="emulated").model_copy(update={"cluster": EMULATED})
    rows = [row(workers=2), emulated, row(workers=4, launcher="ssh")]
    profile = profile_of(tmp_path, rows=rows)
    assert profile.link_for(8) == profile.further_links[0]
    assert profile.further_links[0].nominal_rate is None
    assert [each.workers for each in profile.further_links] == [4, 16]


def crowded(folder, busy, cores):
    """The profile of two workers on a host of so many cores, each of which keeps threads busy."""
    return profile_of(folder, rows=[row(workers=8)], cores=cores).model_copy(update={"busy_threads": busy})


@pytest.mark.parametrize(
    ("busy", "cores", "workers", "longer"),
    [(1.0, 2, 4, 2.0), (1.0, 2, 8, 4.0), (2.0, 4, 4, 2.0), (1.6, 2, 4, 2.0), (0.5, 2, 8, 2.0), (2.0, 2, 1, 0.5)],
)
def test_workers_that_share_cores_compute_as_much_longer_as_their_threads_are_more(
    tmp_path, busy, cores, workers, longer
):
    profile = crowded(tmp_path, busy, cores)
    [found] = predict_attached(profile, [workers])
    computing_s = found.step_s.value - found.exposed_s - found.waiting_s
    assert computing_s / profile.computing_s == pytest.approx(longer * math.exp(0.06 * math.log2(longer)), rel=1e-3)
    assert found.step_s.low < found.step_s.value < found.step_s.high


def test_shared_cores_widen_the_interval(tmp_path):
    [shared], [own] = (predict_attached(crowded(tmp_path / f"{cores}", 1.0, cores), [8]) for cores in (2, 8))
    assert shared.step_s.high / shared.step_s.low > 1.2 * own.step_s.high / own.step_s.low


@pytest.mark.parametrize("cores", [8, 64, 0])
def test_cores_that_suffice_or_are_unknown_change_no_prediction(tmp_path, cores):
    found = predict_attached(crowded(tmp_path / "a", 1.0, cores), [1, 4, 8])
    assert found == predict_attached(crowded(tmp_path / "b", 1.0, 1000), [1, 4, 8])


@pytest.mark.parametrize(
    ("cores", "said"),
    [(2, "Cores: from 3 workers of a machine on"), (0, "Cores: how many cores the host has is not known"), (8, None)],
)
def test_it_is_said_what_predictions_take_of_cores(tmp_path, cores, said):
    profile = crowded(tmp_path, 1.0, cores)
    section = script_section(profile, predict_attached(profile, [4, 8]), "")
    texts = [text for part in section.parts if isinstance(part, Sentences) for text in part.texts]
    assert [text.startswith(said or "?") for text in texts if text.startswith("Cores: ")] == ([True] if said else [])


def test_between_hosts_each_is_as_full_as_that_of_the_run(tmp_path):
    profile = profile_of(tmp_path, cores=2).model_copy(update={"busy_threads": 1.0})
    assert profile.link.between_hosts
    assert profile.shared_cores is None


def test_the_knee_of_a_script_follows_from_its_predictions(tmp_path):
    profile = profile_of(tmp_path)
    knee = attached_knees(profile, [0.8])[0]
    below, above = (
        each.efficiency for each in predict_attached(profile, [int(knee.workers.low) - 1, int(knee.workers.high) + 1])
    )
    assert below > 0.8 > above


def test_the_knee_of_a_script_is_searched_up_to_the_first_count_that_is_refused(tmp_path):
    knees = attached_knees(profile_of(tmp_path, rows=[row(workers=4)]))
    assert {knee.measure: knee.searched_to for knee in knees} == {"efficiency": 4, "doubling": 2}


def test_a_script_whose_predictions_are_refused_has_null_in_place_of_knees(tmp_path):
    assert attached_knees(profile_of(tmp_path, rows=[])) is None


def sharded_step(number, begin, gather_ms, scatter_ms):
    """20 ms forward behind a gather of 2 MiB, 30 ms backward, and a scatter of as much, of which 1 MiB is kept."""
    calls = [("all_gather_single", 2 * MIB, 0.0), ("wait", 0, gather_ms)]
    calls += [("reduce_scatter_single", MIB, 0.0), ("wait", 0, scatter_ms)]
    found, at = [], begin
    for (kind, size, lasts), before in zip(calls, [0.0, 0.0, 50.0, 0.0], strict=True):
        at += round(before * MS)
        found.append([kind, size, at, at + round(lasts * MS)])
        at = found[-1][3]
    regions = {"collective": gather_ms + scatter_ms, "forward": 20.0, "backward": 30.0}
    sums = {
        "forward:all_gather_single": [1, 2 * MIB, 0],
        "forward:wait": [1, 0, round(gather_ms * MS)],
        "backward:reduce_scatter_single": [1, MIB, 0],
        "backward:wait": [1, 0, round(scatter_ms * MS)],
    }
    return step(number, begin, regions, collectives=sums, intervals=found)


def test_sharded_parameters_are_gathered_and_gradients_scattered_when_the_step_asks(tmp_path):
    def gather_ms(workers):
        return 1e3 * ((workers - 1) * START_S + (workers - 1) / workers * 2 * MIB / RATE)

    parts = gather_ms(2), 2 * gather_ms(2)  # gloo reduces the whole on every worker, a ring of twice the steps
    length = round((50 + sum(parts)) * MS)
    steps = [sharded_step(number, 10**10 + number * length, *parts) for number in range(40)]
    run = found_in(write(tmp_path, *(process_lines(rank, 2, steps, lines=[GRADIENTS]) for rank in range(2))))
    files = read_attached(PlainFolder(tmp_path), tmp_path / RECORDS)
    found = predict_attached(attached_profile(run, files, [row(launcher="ssh")], 4), [2, 4])
    assert [each.exposed_s for each in found] == pytest.approx(
        [3e-3 * gather_ms(workers) for workers in (2, 4)], rel=0.01
    )


def test_one_process_of_sharded_parameters_is_refused(tmp_path):
    steps = [step(number, 10**10 + number * 50 * MS, {"forward": 20.0, "backward": 30.0}) for number in range(20)]
    lines = [{**GRADIENTS, "roots": {"FSDPNet": 1}}]
    run = found_in(write(tmp_path, process_lines(0, 1, steps, lines=lines)))
    files = read_attached(PlainFolder(tmp_path), tmp_path / RECORDS)
    assert "attach to two processes" in attached_profile(run, files, [row(launcher="ssh")], 4).refused


def test_a_strategy_without_a_model_is_refused(tmp_path):
    processes = []
    for rank in range(2):
        steps = [
            {**each, "collectives": {"forward:allgather": [1, 64, MS]}} for each in ddp_steps(rank, lambda _: [0, 0])
        ]
        for each in steps:
            begin = each["begin_ns"]
            each["intervals"] = [["allgather", 64, begin, begin + MS]]
        processes.append(process_lines(rank, 2, steps, lines=[GRADIENTS]))
    run = found_in(write(tmp_path, *processes))
    files = read_attached(PlainFolder(tmp_path), tmp_path / RECORDS)
    refused = attached_profile(run, files, [row()], 4).refused
    assert "a step of a rank has 1 allgather of 64 B in its forward; measure" in refused
    assert "steptime sweep -- COMMAND" in refused


def job_of(folder, change=lambda step: step, *, buckets=BUCKETS):
    """The profile of a job of DDP whose steps are changed."""
    processes = [
        process_lines(rank, 2, map(change, ddp_steps(rank, lambda _: [0, 0])), lines=[GRADIENTS, buckets])
        for rank in range(2)
    ]
    run = found_in(write(folder, *processes))
    return attached_profile(run, read_attached(PlainFolder(folder), folder / RECORDS), [row()], 4)


def with_call(region, kind, size):
    """Add a collective of 1 ms to a step, in the forward pass or behind the last gradient."""

    def change(step):
        begin, last = step["backwards"][0][:2]
        at = begin - 2 * MS if region == "forward" else last + MS
        regions = {**step["regions"], "collective": MS}
        regions[region] -= MS
        more = {"collectives": {f"{region}:{kind}": [1, size, MS]}, "intervals": [[kind, size, at, at + MS]]}
        return {**step, "regions": regions, **more}

    return change


def test_the_buffers_of_batch_norm_are_sent_in_the_forecast_too(tmp_path):
    profile = job_of(tmp_path / "buffers", with_call("forward", "_broadcast_coalesced", 4096))
    assert (profile.refused, profile.buffers) == (None, 4096)
    without = job_of(tmp_path / "none")
    assert without.buffers == 0


@pytest.mark.parametrize("hook", ["fp16_compress_hook", "BuiltinCommHookType.FP16_COMPRESS"])
@pytest.mark.parametrize("seen", [True, False])
def test_gradients_that_a_hook_sends_in_half_precision_have_half_their_bytes(tmp_path, hook, seen):
    change = with_call("backward", "allreduce", 2 * MIB) if seen else lambda step: step
    profile = job_of(tmp_path, change, buckets={**BUCKETS, "hook": hook, "sent_bytes": 2 * MIB})
    assert profile.refused is None
    assert sum(bucket.bytes for bucket in profile.buckets) == 2 * MIB


def test_a_hook_without_a_model_is_refused_by_its_name(tmp_path):
    profile = job_of(tmp_path, buckets={**BUCKETS, "hook": "powerSGD_hook"})
    assert profile.refused == "its gradients go through the hook powerSGD_hook of DDP, which no model covers yet"


def test_a_step_that_is_not_explained_is_refused(tmp_path):
    steps = [step(number, 10**10 + number * 100 * MS, {"forward": 50.0}) for number in range(20)]
    for each in steps:
        each["duration_ns"] = 100 * MS
    run = found_in(write(tmp_path, process_lines(0, 1, steps, lines=[GRADIENTS])))
    files = read_attached(PlainFolder(tmp_path), tmp_path / RECORDS)
    assert "50 % of its step is not explained" in attached_profile(run, files, [row()], 4).refused


def test_a_profile_is_the_same_when_it_is_read_again(tmp_path):
    profile = profile_of(tmp_path)
    write_attached_profile(profile, tmp_path / "profile.json")
    assert read_attached_profile(tmp_path / "profile.json") == profile


def test_predict_takes_the_profile_and_refuses_other_changes(tmp_path):
    write_attached_profile(profile_of(tmp_path), tmp_path / "profile.json")
    done = process("predict", "profile.json", "--workers", "2,8", "--json", cwd=tmp_path)
    assert [each["workers"] for each in json.loads(done.stdout)["predictions"]] == [2, 8]
    done = process("predict", "profile.json", "bucket_mb=5", cwd=tmp_path, check=2)
    assert "only --workers can change" in done.stderr


def test_another_link_and_too_many_workers_are_refused_together(tmp_path):
    path = tmp_path / "p.json"
    write_attached_profile(profile_of(tmp_path / "run", rows=[row()]), path)
    text = process(
        "predict", str(path), "interconnect.bandwidth=25Gbit/s", "--workers", "64", cwd=tmp_path, check=2
    ).stderr
    assert text.startswith("2 errors")
    assert "steptime net" in text
    assert "64 workers need a link that was not measured" in text


@pytest.mark.parametrize(("measured", "seen"), [(1, False), (2, True)])
def test_a_forecast_from_one_process_is_marked_as_one_without_an_exchange(tmp_path, measured, seen):
    profile = profile_of(tmp_path).model_copy(update={"workers": measured})
    verdict = script_section(profile, predict_attached(profile, [4]), "").verdict
    assert ("One process was measured, which exchanges nothing" not in verdict) is seen


def test_one_worker_of_one_process_needs_no_exchange(tmp_path):
    profile = profile_of(tmp_path).model_copy(update={"workers": 1})
    assert "exchanges nothing" not in script_section(profile, predict_attached(profile, [1]), "").verdict


def test_the_page_of_a_script_begins_with_the_answer_and_shows_its_curve(tmp_path):
    write_attached_profile(profile_of(tmp_path), tmp_path / "profile.json")
    process("predict", "profile.json", "--workers", "2,8", "--html", "page.html", cwd=tmp_path)
    page = (tmp_path / "page.html").read_text("utf-8")

    order = ['<div class="answer">', "With 8 workers a step takes ", "<main>", "Step time against workers"]
    assert sorted(order, key=page.index) == order


def on_a_busy_machine(folder, **end):
    processes = [
        process_lines(rank, 2, ddp_steps(rank, lambda _: [0.0, 0.0]), lines=[GRADIENTS, BUCKETS]) for rank in range(2)
    ]
    for lines in processes:
        lines[-1].update(end)
    run = found_in(write(folder, *processes), noise={"foreign_cpu_cores": 1.5, "own_cpu_cores": 1.0})
    files = read_attached(PlainFolder(folder), folder / RECORDS)
    return attached_profile(run, files, [row(launcher="ssh")], 4)


def delayed_by(folder, share):
    """The profile of a run whose processes others kept from running for a share of the time."""
    folder.mkdir()
    lines = process_lines(0, 2, ddp_steps(0, lambda _: [0.0, 0.0]))
    lasted = lines[-1]["at_ns"] - next(each["begin_ns"] for each in lines if each["kind"] == "process")
    return on_a_busy_machine(folder, delayed_ns=round(share * lasted))


def of_a_transformer(folder, same=()):
    """The profile of two workers that train on 512 tokens each, with a fifth of the arithmetic of their peak."""
    processes = [
        process_lines(rank, 2, ddp_steps(rank, lambda _: [0.0, 0.0]), lines=[GRADIENTS, BUCKETS]) for rank in range(2)
    ]
    run = found_in(write(folder, *processes))
    peak = Interval(1e12, 1e12, 1e12)
    arithmetic = RankArithmetic(
        flop_per_s=Interval(2e11, 2e11, 2e11),
        precision="fp32",
        peak_flop_per_s=peak,
        peak_source="measured",
        mfu=Interval(0.2, 0.2, 0.2),
        reason=None,
    )
    amount = TrainedAmount(per_s=Interval(1.0, 1.0, 1.0), per_step=1024.0, ranks_per_s=[], reason=None)
    throughput = Throughput(samples=amount, tokens=amount, padding=None, same_batches=list(same))
    update = {"flops": 0.2e12 * run.step_s.value, "arithmetic": arithmetic, "throughput": throughput}
    files = read_attached(PlainFolder(folder), folder / RECORDS)
    return attached_profile(run.model_copy(update=update), files, [row(launcher="ssh")], 64), run.step_s.value


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_the_forecast_of_a_transformer_has_its_tokens_and_its_share_of_the_peak(tmp_path, workers):
    profile, now_s = of_a_transformer(tmp_path)
    [found] = predict_attached(profile, [workers])
    assert found.tokens_per_s.value == pytest.approx(workers * 512 / found.step_s.value)
    assert found.mfu.value == pytest.approx(0.2 * now_s / found.step_s.value)
    assert found.mfu.low == pytest.approx(0.2 * now_s / found.step_s.high)


def test_the_table_of_a_transformers_forecast_has_both(tmp_path):
    profile, _ = of_a_transformer(tmp_path)
    section = script_section(profile, predict_attached(profile, [2, 4]), "")
    [table] = [part for part in section.parts if isinstance(part, SectionTable)]
    assert [column.title for column in table.columns][-2:] == ["tokens/s", "MFU"]
    assert table.rows[0].cells[-1].text.endswith(" %")


def test_ranks_that_read_the_same_have_no_tokens_of_more_workers(tmp_path):
    profile, _ = of_a_transformer(tmp_path, same=[[0, 1]])
    assert predict_attached(profile, [4])[0].tokens_per_s is None


def test_a_run_of_which_it_is_unknown_what_others_took_is_refused(tmp_path):
    assert "others kept 1.5 cores busy" in on_a_busy_machine(tmp_path).refused


@pytest.mark.parametrize(("share", "is_refused"), [(0.02, False), (0.10, False), (0.25, False), (0.35, True)])
def test_a_run_is_refused_where_others_took_so_much_that_its_interval_says_nothing(tmp_path, share, is_refused):
    assert (delayed_by(tmp_path / "busy", share).refused is not None) is is_refused


@pytest.mark.parametrize("share", [0.10, 0.25])
def test_what_others_took_widens_the_interval_to_an_idle_machine_and_a_busier_one(tmp_path, share):
    busy, idle = (delayed_by(tmp_path / f"{each}", each) for each in (share, 0.0))
    [wide], [narrow] = (predict_attached(each, [4]) for each in (busy, idle))
    assert wide.step_s.low < min(narrow.step_s.low, 1.02 * (1.0 - share) * wide.step_s.value)
    assert wide.step_s.high > max(narrow.step_s.high, wide.step_s.value / (1.0 - share) / 1.02)


def test_it_is_said_that_others_took_time_of_the_run(tmp_path):
    profile = delayed_by(tmp_path / "busy", 0.25)
    section = script_section(profile, predict_attached(profile, [4]), "")
    said = [text for part in section.parts if isinstance(part, Sentences) for text in part.texts]
    taken = "Others kept 1.5 cores busy during the run, and its processes from running for 25 % of the time"
    assert any(text.startswith(taken) for text in said)


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "JSON"])
def test_fit_writes_no_profile_of_a_run_that_predicts_nothing(tmp_path, form):
    store = Store.create(tmp_path / "run", study_text="", study_json={"name": "run", "question": ""})
    header = {"command": ["train.py"], "started_at": "2026-01-01T00:00:00+00:00", "boot": "boot-0", "exit_code": 0}
    times = {"begin_ns": COMMAND, "end_ns": COMMAND + 9000 * MS, "wall_minus_monotonic_ns": 0}
    store.put("attached", {**header, **times})
    write(tmp_path / "run", process_lines(0, 1, ddp_steps(0, lambda _: [0.0], steps=20)))
    done = process("fit", "run", *form, cwd=tmp_path, check=2)
    assert "predicts nothing: the bytes of its gradients are not on record" in done.stderr
    assert not (tmp_path / "run.profile.json").exists()


def test_others_who_never_kept_the_run_from_a_processor_are_no_reason_to_refuse(tmp_path):
    profile = on_a_busy_machine(tmp_path, delayed_ns=0)
    assert (profile.refused, profile.delayed) == (None, 0.0)


def test_a_table_of_nccl_tests_replaces_the_message_benchmark(tmp_path):
    profile_of(tmp_path)
    table = NetLink(
        framework="any",
        back_end="nccl-tests",
        operation="allreduce",
        launcher="nccl-tests",
        workers=16,
        servers=0,
        between_hosts=True,
        nominal_rate=None,
        delay_s=0.0,
        latency_s=START_S,
        rate=RATE,
        alpha_s=None,
        worst_error=0.0,
    )
    files = read_attached(PlainFolder(tmp_path), tmp_path / RECORDS)
    profile = attached_profile(found_in(tmp_path), files, [], 2, [table])
    assert profile.link.between_hosts
    assert predict_attached(profile, [64])[0].exposed_s > predict_attached(profile, [8])[0].exposed_s > 0.0
