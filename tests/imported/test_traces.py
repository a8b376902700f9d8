"""Traces of PyTorch's profiler become steps with parts whose truth is planted."""

import gzip
import json

import pytest

from steptime.cli.app import run_program
from steptime.errors import FileError, UsageError
from steptime.imported.kineto import read_kineto
from steptime.imported.source import ReadLimits

STEPS = 12
STEP_US = 1000.0
PLANTED = {"compute": 350.0, "update": 50.0, "collective": 60.0, "copy": 20.0, "input": 100.0}
"""Of a step on a device, in microseconds; 40 more of the communication are hidden."""


def event(kind, name, at, lasted, **args):
    return {"ph": "X", "cat": kind, "name": name, "pid": 1, "tid": 1, "ts": at, "dur": lasted, "args": args}


def device_step(number, late=0.0):
    """Return the events of a step: on the processor from its begin, on the device so much later."""
    at = 5000.0 + number * STEP_US
    on = at + 110.0 + late
    return [
        event("user_annotation", f"ProfilerStep#{number}", at, STEP_US),
        event("user_annotation", "enumerate(DataLoader)#_Iter.__next__", at + late, 100.0),
        event("cuda_runtime", "cudaLaunchKernel", at + 110.0, 1.0, correlation=number),
        event("kernel", "gemm", on, 300.0, correlation=number),
        event("kernel", "gemm on another stream", on + 100.0, 250.0),
        event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", on + 310.0, 100.0),
        event("gpu_user_annotation", "Optimizer.step#SGD.step", on + 410.0, 60.0),
        event("kernel", "multi_tensor_apply", on + 415.0, 50.0),
        event("gpu_memcpy", "Memcpy HtoD", on + 470.0, 20.0),
    ]


def processor_step(number):
    at = 5000.0 + number * STEP_US
    return [
        event("user_annotation", f"ProfilerStep#{number}", at, STEP_US),
        event("user_annotation", "enumerate(DataLoader)#_Iter.__next__", at, 100.0),
        event("cpu_op", "aten::stack", at + 20.0, 50.0),
        event("cpu_op", "aten::mm", at + 100.0, 350.0),
        event("cpu_op", "aten::addmm", at + 120.0, 30.0),
        event("user_annotation", "gloo:all_reduce", at + 410.0, 60.0),
        event("user_annotation", "gloo:all_reduce", at + 440.0, 70.0),
        event("user_annotation", "Optimizer.step#SGD.step", at + 520.0, 60.0),
        event("cpu_op", "aten::add_", at + 525.0, 50.0),
    ]


def trace(events, indent=1, **info):
    about = {"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1}, **info}
    return json.dumps({**about, "traceEvents": events, "traceName": "t"}, indent=indent).encode()


DEVICE = [each for number in range(STEPS) for each in device_step(number)]
FORMS = {
    "as written": trace(DEVICE),
    "packed": gzip.compress(trace(DEVICE)),
    "in one line": trace(DEVICE, indent=None),
    "a bare list": json.dumps(DEVICE).encode(),
    "with other events": trace(
        [*DEVICE, {"ph": "M", "args": [{"a": 1}, {"b": 2}]}, {"ph": "X", "ts": "soon"}, {"ph": "X", "cat": []}, 7, None]
    ),
    "since 1970": trace([{**each, "ts": each["ts"] + 1.7e15} for each in DEVICE]),
    "all operations, as older ones": trace(
        [{**each, "cat": "cpu_op" if each["cat"] == "user_annotation" else each["cat"]} for each in DEVICE]
    ),
    "behind by two steps": trace([each for number in range(STEPS) for each in device_step(number, late=2100.0)]),
}


@pytest.fixture
def regions(tmp_path):
    """Return a function that returns the mean parts of a trace's steps in microseconds."""

    def read(data):
        (tmp_path / "trace.json").write_bytes(data)
        [process] = read_kineto(tmp_path / "trace.json").processes
        assert {step.duration_ns for step in process.steps} == {round(STEP_US * 1000)}
        names = {name for step in process.steps for name in step.regions}
        return {
            name: sum(step.regions.get(name, 0) for step in process.steps) / len(process.steps) / 1e3 for name in names
        }

    return read


@pytest.mark.parametrize("form", FORMS)
def test_a_step_on_a_device_has_the_parts_that_were_planted(form, regions):
    assert regions(FORMS[form]) == pytest.approx(PLANTED)


def test_operations_of_overlapping_gloo_threads_count_once(regions):
    parts = regions(trace([each for number in range(STEPS) for each in processor_step(number)]))
    assert parts == pytest.approx({"compute": 350.0, "input": 100.0, "collective": 60.0, "update": 50.0})


def test_a_trace_without_marked_steps_has_steps_between_updates(tmp_path):
    events = [each for each in DEVICE if not each["name"].startswith("ProfilerStep")]
    events += [event("user_annotation", "Optimizer.step#SGD.step", 5900.0 + n * STEP_US, 50.0) for n in range(STEPS)]
    (tmp_path / "trace.json").write_bytes(trace(events))
    [process] = read_kineto(tmp_path / "trace.json").processes
    assert [step.duration_ns for step in process.steps] == [round(STEP_US * 1000)] * (STEPS - 1)


def test_report_shows_the_parts_and_why_others_are_not_known(tmp_path, capsys):
    (tmp_path / "trace.json").write_bytes(trace(DEVICE))
    assert run_program(["import", str(tmp_path / "trace.json"), "-o", str(tmp_path / "out")]) == 0
    capsys.readouterr()
    assert run_program(["report", str(tmp_path / "out"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)["attached"]
    parts = {part["name"]: part for part in report["parts"]}
    assert parts["compute"]["time_s"]["value"] == pytest.approx(350e-6)
    assert parts["input_wait"]["time_s"]["value"] == pytest.approx(100e-6)
    assert sum(part["time_s"]["value"] or 0 for part in parts.values()) == pytest.approx(report["step_s"]["value"])
    assert "forward" in parts["forward"]["reason"]
    assert report["imported"][0]["values"]["hidden_communication_s"] == pytest.approx(40e-6)


def test_traces_of_two_ranks_make_one_run_without_a_claim_on_what_they_exchange(tmp_path, capsys):
    for rank in (0, 1):
        data = trace(DEVICE, distributedInfo={"backend": "nccl", "rank": rank, "world_size": 2})
        (tmp_path / f"rank{rank}.json").write_bytes(data)
    files = [str(tmp_path / f"rank{rank}.json") for rank in (0, 1)]
    assert run_program(["import", *files, "-o", str(tmp_path / "out"), "--json"]) == 0
    run = json.loads(capsys.readouterr().out)["attached"]
    assert [rank["rank"] for rank in run["ranks"]] == [0, 1]
    assert (run["world"], run["attempts"]) == (2, 1)
    assert not [each for each in run["findings"] if each["kind"] in {"separate_models", "straggler", "waiting"}]


@pytest.mark.parametrize(("name", "rank"), [("job.rank3.json", 3), ("rank_12_trace.json", 12), ("trace.json", 0)])
def test_the_rank_is_of_the_name_where_the_trace_has_none(name, rank, tmp_path):
    (tmp_path / name).write_bytes(json.dumps(DEVICE).encode())
    [process] = read_kineto(tmp_path / name).processes
    assert process.rank == rank
    assert process.workers is None


HOSTILE = {
    "cut": (FORMS["as written"][:-3000], "no end"),
    "cut gzip": (FORMS["packed"][:-200], "no end"),
    "nested": (b'{"traceEvents": [{"a": ' + b"[" * 5000, "nested|no end"),
    "an impossible rank": (trace(DEVICE, distributedInfo={"rank": 5, "world_size": 2}), "cannot be"),
    "without steps": (trace([event("kernel", "gemm", 1.0, 2.0)]), "neither a step"),
    "huge numbers": (trace([event("user_annotation", "ProfilerStep#1", 1e300, 1e300)]), "neither a step"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_trace_ends_in_a_sentence(name, tmp_path):
    data, sentence = HOSTILE[name]
    (tmp_path / "trace.json").write_bytes(data)
    with pytest.raises((FileError, UsageError), match=sentence):
        read_kineto(tmp_path / "trace.json")


def test_zeros_in_place_of_events_are_read_up_to_a_limit(tmp_path):
    (tmp_path / "trace.json.gz").write_bytes(gzip.compress(b'{"x": "' + b"0" * 9_000_000))
    with pytest.raises(FileError, match="no list traceEvents"):
        read_kineto(tmp_path / "trace.json.gz", ReadLimits(line=100_000))


PASSES_US = {"forward": 120.0, "backward": 180.0, "update": 40.0, "compute": 30.0}
"""Of a step whose operations have autograd's numbers."""


def passes_step(number, *, marked=False):
    """Return a step whose kernels are launched in a forward pass, a backward pass, an update, and outside of them."""
    at = 5000.0 + number * STEP_US
    events = [event("user_annotation", f"ProfilerStep#{number}", at, STEP_US)]
    if marked:
        events.append(event("user_annotation", "DistributedDataParallel.forward", at + 100.0, 50.0))
        events.append(event("user_annotation", "## backward ##", at + 200.0, 50.0))
    else:
        numbers = {"Sequence number": number, "Fwd thread id": 0}
        events.append(event("cpu_op", "aten::addmm", at + 100.0, 50.0, **numbers))
        events.append(event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", at + 200.0, 50.0))
        events.append(event("cpu_op", "AddmmBackward0", at + 205.0, 40.0, **{**numbers, "Fwd thread id": 1}))
    events.append(event("user_annotation", "Optimizer.step#SGD.step", at + 300.0, 50.0))
    begin = at + 110.0
    for index, (name, lasted) in enumerate(PASSES_US.items()):
        correlation = 4 * number + index
        launch = at + 110.0 + 100.0 * index
        events.append(event("cuda_runtime", "cudaLaunchKernel", launch, 1.0, correlation=correlation))
        events.append(event("kernel", f"kernel of {name}", max(begin, launch), lasted, correlation=correlation))
        begin = max(begin, launch) + lasted
    return events


@pytest.mark.parametrize("marked", [False, True])
def test_kernels_are_of_the_pass_that_launches_them(marked, regions):
    parts = regions(trace([each for number in range(STEPS) for each in passes_step(number, marked=marked)]))
    assert parts == pytest.approx(PASSES_US)


def test_operations_of_processors_are_of_their_pass(regions):
    events = [each for number in range(STEPS) for each in passes_step(number)]
    events = [each for each in events if each["cat"] not in {"kernel", "cuda_runtime"}]
    assert regions(trace(events)) == pytest.approx({"forward": 50.0, "backward": 50.0})


def collective(rank, number, *, ahead=0.0, group=None, name="allreduce"):
    """Return a step with a collective that ends on both ranks alike: rank 1 comes 60 us later, and waits for none."""
    at = 5000.0 + number * STEP_US + ahead * rank
    begin = at + 400.0 + (60.0 if rank else 0.0)
    about = {"Collective name": name} | ({"Process Group Ranks": group, "Process Group Name": "0"} if group else {})
    return [
        event("user_annotation", f"ProfilerStep#{number}", at, STEP_US),
        event("user_annotation", "nccl:all_reduce", at + 90.0 + 20.0 * rank, 5.0),
        event("kernel", "gemm", at + 100.0, 300.0 + (60.0 if rank else 0.0)),
        event("kernel", "ncclDevKernel_AllReduce", begin, at + 500.0 - begin, **about),
        event("kernel", "gemm beside the transfer", at + 490.0, 110.0),
    ]


def two_traces(tmp_path, capsys, world=2, bases=(0, 0), **changes):
    """Return the run of two ranks' traces with a collective in each step."""
    files = []
    for rank in (0, 1):
        events = [each for number in range(STEPS) for each in collective(rank, number, **changes)]
        if bases[rank]:
            events = [{**each, "ts": each["ts"] - bases[rank] / 1e3} for each in events]
        info = {"distributedInfo": {"rank": rank, "world_size": world}, "baseTimeNanoseconds": bases[rank]}
        files.append(tmp_path / f"rank{rank}.json")
        files[-1].write_bytes(trace(events, **info))
    assert run_program(["import", *map(str, files), "-o", str(tmp_path / "out"), "--json"]) == 0
    return json.loads(capsys.readouterr().out)["attached"]


@pytest.mark.parametrize("bases", [(0, 0), (7_000_000, 2_000_000)])
@pytest.mark.parametrize("group", [None, "[0, 1]"])
def test_transfer_is_the_least_time_of_a_collective_over_ranks_and_the_rest_is_waiting(bases, group, tmp_path, capsys):
    run = two_traces(tmp_path, capsys, bases=bases, group=group)
    parts = {part["name"]: part for part in run["parts"]}
    assert parts["sync_wait"]["ranks_s"] == pytest.approx([60e-6, 0.0], abs=1e-9)
    assert parts["comm_exposed"]["ranks_s"] == pytest.approx([30e-6, 30e-6], abs=1e-9)


UNSPLIT = {
    "a rank without a trace": ({"world": 3}, "no trace of rank 2"),
    "clocks apart": ({"ahead": 300.0}, "not aligned"),
    "messages": ({"name": "send"}, "send to one another"),
}


@pytest.mark.parametrize("case", UNSPLIT)
def test_what_traces_do_not_show_of_the_exchange_is_null_with_the_reason(case, tmp_path, capsys):
    changes, reason = UNSPLIT[case]
    parts = {part["name"]: part for part in two_traces(tmp_path, capsys, **changes)["parts"]}
    assert parts["sync_wait"]["time_s"]["value"] is None
    assert reason in parts["comm_exposed"]["reason"]
