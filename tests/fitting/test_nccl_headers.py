"""nccl-tests by its header: which column is the time, what groups are, and other benchmarks that look alike."""

import json

import pytest

from steptime.errors import UsageError
from steptime.fitting.nccl_output import parse_nccl_tests

OPTIONS = ("time", "algbw", "busbw", "#wrong")
PER_ITERATION = (*OPTIONS, "i_min", "i_max", "i_p99", "i_cv%")
OLD = ("time", "algbw", "busbw", "error")
CALLS = ("cputime", "algbw", "busbw", "#wrong")
SIZES = [2**exponent for exponent in range(20, 34, 2)]
BUS = 350e9


def digits(value: float, width: int) -> str:
    """Return a number in a column of nccl-tests, as its ``src/util.cu`` shortens it."""
    texts = [f"{value:{width}.{count}f}" for count in (2, 1, 0)]
    return next((text for text in texts if len(text) <= width), f"{value:{width}.1e}")


def seconds_of(size: int, ranks: int, bus: float = BUS) -> float:
    return 40e-6 + 2 * (ranks - 1) / ranks * size / bus


def words(columns, size, ranks, bus=BUS):
    """Return the values of the columns of one size."""
    seconds = seconds_of(size, ranks, bus)
    rate = size / seconds / 1e9
    values = {
        **dict.fromkeys(columns, "2.31"),
        **dict.fromkeys(("time", "cputime"), digits(seconds * 1e6, 7)),
        "algbw": digits(rate, 6),
        "busbw": digits(rate * 2 * (ranks - 1) / ranks, 6),
        "#wrong": "0",
        "error": "2e-07",
    }
    return " ".join(values[name] for name in columns)


def output(columns=OPTIONS, ranks=16, *, per_host=8, group=lambda _: 0, root=True, bus=BUS, stamp=""):  # noqa: PLR0913 - what tables differ in
    """Return what all_reduce_perf prints."""
    listed = [
        f"#  Rank {rank:2d} Group {group(rank):2d} Pid {4000 + rank} on node{rank // per_host:02d} device  0 [0:4] GPU"
        for rank in range(ranks)
    ]
    inside = sum(group(rank) == group(0) for rank in range(ranks))
    head = ["# nThread 1 nGpus 1", "# Using devices", *listed]
    head.append(f"#  size count type redop {'root ' if root else ''}{' '.join(columns)} {' '.join(columns)}")
    rows = [
        f"{size} {size // 4} float sum {'-1 ' if root else ''}{words(columns, size, inside, bus)} "
        f"{words(columns, size, inside, bus)}{stamp}"
        for size in SIZES
    ]
    return "\n".join([*head, *rows, "# Out of bounds values : 0 OK"])


def mistakes(text):
    with pytest.raises(UsageError) as caught:
        parse_nccl_tests(text, "out.txt")
    return caught.value.mistakes


@pytest.mark.parametrize("root", [True, False])
@pytest.mark.parametrize("columns", [OPTIONS, PER_ITERATION, OLD], ids=["usual", "-I 1", "old"])
def test_the_time_is_the_column_that_the_header_names_so(columns, root):
    (table,) = parse_nccl_tests(output(columns, root=root), "out.txt")
    assert [row.size for row in table.rows] == SIZES
    assert [row.seconds for row in table.rows] == pytest.approx([seconds_of(size, 16) for size in SIZES], rel=0.02)
    assert all(row.in_place_s for row in table.rows)


def test_a_time_of_day_behind_a_row_is_no_column():
    assert parse_nccl_tests(output(stamp=" 2026-07-09 16:03:21"), "a") == parse_nccl_tests(output(), "a")


def test_times_of_calls_are_refused():
    (mistake,) = mistakes(output(CALLS))
    assert "cputime, -C 1" in mistake
    assert "run all_reduce_perf without -C" in mistake


def test_times_of_calls_in_json_are_refused():
    part = {"cpu_time": 8.0, "alg_bw": 131.07, "bus_bw": 245.8, "nwrong": 0}
    result = {"size": 2**20, "count": 2**18, "type": "float", "redop": "sum", "out_of_place": part}
    whole = {"args": ["all_reduce_perf", "-C", "1"], "config": {"ranks": 16}, "results": [result, result]}
    (mistake,) = mistakes(json.dumps(whole))
    assert "run all_reduce_perf without -C" in mistake


def test_a_header_without_a_time_is_refused_with_its_columns():
    (mistake,) = mistakes(output(("algbw", "busbw", "#wrong")))
    assert "no column time" in mistake
    assert "algbw busbw #wrong" in mistake


@pytest.mark.parametrize(
    ("ranks", "group", "shape", "groups"),
    [
        (16, lambda rank: rank % 8, (2, 2), "8 groups of 2 ranks on 2 hosts"),
        (16, lambda rank: rank // 8, (8, 1), "2 groups of 8 ranks on 1 host"),
        (512, lambda rank: rank % 8, (64, 64), "8 groups of 64 ranks on 64 hosts"),
        (16, lambda rank: rank // 4 % 2, (8, 2), "2 groups of 8 ranks on 2 hosts"),
    ],
)
def test_a_table_of_groups_has_the_ranks_and_hosts_of_one(ranks, group, shape, groups):
    (table,) = parse_nccl_tests(output(ranks=ranks, group=group), "out.txt")
    assert (table.ranks, table.hosts) == shape
    assert any(f"{groups} ran at once (NCCL_TESTS_SPLIT)" in sentence for sentence in table.passed_over)


def test_groups_of_different_sizes_are_refused_by_their_sizes():
    (mistake,) = mistakes(output(group=lambda rank: int(rank > 3)))
    assert "4 ranks on 1 host, 12 ranks on 2 hosts" in mistake


@pytest.mark.parametrize("bus", [0.61e9, 6.1e6, 6.1e4])
def test_rows_of_few_digits_are_read_as_precisely_as_they_are_printed(bus):
    (table,) = parse_nccl_tests(output(ranks=2, per_host=1, bus=bus), "out.txt")
    wanted = [seconds_of(size, 2, bus) for size in SIZES]
    assert [row.seconds for row in table.rows] == pytest.approx(wanted, rel=0.06)


def test_few_digits_do_not_excuse_a_time_that_is_another():
    text = output(ranks=2, per_host=1, bus=6.1e6)
    assert any("not" in mistake for mistake in mistakes(text.replace("7.0e+08", "7.0e+05")))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("# OSU MPI-CUDA Allreduce Latency Test v7.5\n# Size  Avg Latency(us)\n4   20.00\n", "OSU's micro-benchmarks"),
        ("| payload |  busbw | algbw |\n| ---: | ---: | ---: |\n| 16KiB | 0.2Gbps | 0.1Gbps |\n", "table of payloads"),
    ],
)
def test_another_benchmark_is_named_as_what_it_is(text, named):
    (mistake,) = mistakes(text)
    assert named in mistake
    assert "steptime net" in mistake


_RATES = "0.01 0.01 N/A"
UNREDUCED = {
    "all_gather": ("size count type time", f"{{size}} 8 float 34.8 {_RATES} 34.2 {_RATES}"),
    "broadcast": ("size count type root time", f"{{size}} 8 float 0 34.8 {_RATES} 34.2 {_RATES}"),
    "alltoall": ("size count type redop time", f"{{size}} 8 float   89.0 {_RATES} 85.1 {_RATES}"),
}
"""Tables of old versions, which name neither a program nor a reduction."""


@pytest.mark.parametrize("name", UNREDUCED)
def test_old_tables_of_operations_that_reduce_nothing_are_named_so(name):
    header, row = UNREDUCED[name]
    rows = "\n".join(row.format(size=size) for size in SIZES)
    (mistake,) = mistakes(f"# nThread 1 nGpus 8\n#  {header} algbw busbw error\n{rows}\n")
    assert f"{len(SIZES)} rows that reduce nothing (all_gather_perf or the like) are not used" in mistake


@pytest.mark.parametrize(("factor", "named"), [(0.5, "reduce_scatter_perf"), (8 / 15, "of reduce_perf")])
def test_a_table_whose_rates_are_of_another_operation_is_named_by_it(factor, named):
    lines = output().splitlines()
    for place, line in enumerate(lines):
        if " float sum " in line:
            texts = line.split()
            for column in (7, 11):
                texts[column] = f"{float(texts[column - 1]) * 1.875 * factor:.3f}"
            lines[place] = " ".join(texts)
    assert named in " ".join(mistakes("\n".join(lines)))
