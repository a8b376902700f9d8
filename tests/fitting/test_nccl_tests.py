"""Reading what nccl-tests prints, and the links behind it."""

import json
from contextlib import suppress

import pytest

from steptime.errors import UsageError
from steptime.fitting.links import fit_tables
from steptime.fitting.nccl_output import parse_nccl_tests, read_nccl_tests
from steptime.model.nccl import STEP

# Published rows: eight A100 of one host, two hosts of eight on Azure (addresses in benchmarks/nccl/systems.csv).
HOST = """
# nThread 1 nGpus 1 minBytes 8 maxBytes 4294967296 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
#
# Using devices
{devices}
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
       65536         16384     float     sum      -1    31.82    2.06    3.60      0    30.24    2.17    3.79      0
     1048576        262144     float     sum      -1    37.89   27.67   48.43      0    38.57   27.19   47.58      0
    33554432       8388608     float     sum      -1    377.6   88.87  155.53      0    377.7   88.85  155.48      0
  1073741824     268435456     float     sum      -1   8244.5  130.24  227.91      0   8252.7  130.11  227.69      0
# Avg bus bandwidth    : 72.7724
"""
TWO_HOSTS = """
     1048576        262144     float     sum      -1    96.39   10.88   20.40      0    96.73   10.84   20.33      0
    33554432       8388608     float     sum      -1    615.6   54.51  102.21      0    626.3   53.58  100.45      0
  1073741824     268435456     float     sum      -1    11063   97.05  181.98      0    11089   96.83  181.56      0
"""


def devices(ranks: int, per_host: int = 8) -> str:
    return "\n".join(
        f"#  Rank {rank:2} Group  0 Pid  {56543 + rank} on   node{rank // per_host} device  {rank % per_host} [0x07] "
        "NVIDIA A100-SXM4-80GB"
        for rank in range(ranks)
    )


ONE = HOST.format(devices=devices(8))
TWO = devices(16) + TWO_HOSTS


def only(text, name="out.txt"):
    (table,) = parse_nccl_tests(text, name)
    return table


def mistakes(text):
    with pytest.raises(UsageError) as caught:
        parse_nccl_tests(text, "out.txt")
    return caught.value.mistakes


def test_a_table_has_ranks_hosts_and_the_device():
    found = only(ONE, "out.txt")

    assert (found.ranks, found.hosts, found.device) == (8, 1, "NVIDIA A100-SXM4-80GB")


def test_hosts_are_counted_by_their_names():
    assert only(TWO, "out.txt").hosts == 2


def test_a_row_has_its_size_and_both_times():
    row = only(ONE, "out.txt").rows[0]

    assert (row.size, row.out_of_place_s, row.in_place_s) == (65536, pytest.approx(31.82e-6), pytest.approx(30.24e-6))


def test_busbw_is_computed_as_nccl_tests_does():
    table = only(ONE, "out.txt")

    assert table.bus_rate(table.rows[-1]) == pytest.approx(227.8e9, rel=1e-3)


@pytest.mark.parametrize("prefix", ["> ", "[1,0]<stdout>:", " 0: "])
def test_what_a_launcher_puts_before_a_line_is_passed_over(prefix):
    text = "\n".join(prefix + line for line in ONE.splitlines())

    assert only(text, "out.txt").rows == only(ONE, "out.txt").rows


def test_without_devices_ranks_follow_from_busbw_over_algbw():
    rows = "# nThread 1 nGpus 8\n" + TWO_HOSTS

    found = only(rows, "out.txt")

    assert (found.ranks, found.hosts) == (16, 2)


def test_rows_without_a_second_time_are_read():
    found = only(devices(8) + "\n 8388608 2097152 float sum -1 80.32 104.44 182.77\n", "out.txt")

    assert found.rows[0].in_place_s is None


def test_every_wrong_line_is_named():
    text = ONE.replace("37.89", "37,89").replace("8244.5", "-8244.5")

    first, second = mistakes(text)

    assert "out.txt, line" in first
    assert "37,89" in first
    assert "line" in second


def test_a_time_that_contradicts_its_rate_is_refused():
    assert "GB/s" in mistakes(ONE.replace(" 377.6", " 777.6"))[0]


def test_devices_of_another_table_are_refused():
    assert "16 ranks" in mistakes(devices(16) + ONE.replace(devices(8), ""))[0]


def test_another_operation_is_refused():
    assert "all_reduce_perf" in mistakes("# Collective test starting: all_gather_perf\n" + ONE)[0]


@pytest.mark.parametrize("text", ["", "hello", "# only comments\n", "size count type"])
def test_a_text_without_a_table_is_refused(text):
    assert "no row" in mistakes(text)[0]


def test_mistakes_of_all_files_are_told_at_once(tmp_path):
    (tmp_path / "one").write_text("nothing")
    (tmp_path / "two").write_text("nothing")

    with pytest.raises(UsageError) as caught:
        read_nccl_tests([tmp_path / "one", tmp_path / "two", tmp_path / "three"])

    assert len(caught.value.mistakes) == 3


def test_the_link_inside_a_host_is_that_of_the_table():
    (found,) = fit_tables([only(ONE, "one")])

    assert not found.link.between_hosts
    assert found.link.rate == pytest.approx(235e9, rel=0.1)
    assert found.link.latency_s == pytest.approx(STEP["nvlink"], rel=1.0)
    assert found.modelled_s == pytest.approx([row.seconds for row in found.table.rows], rel=0.3)


def test_several_files_tell_links_of_both_kinds_apart():
    one, two = fit_tables([only(TWO, "two"), only(ONE, "one")])

    assert [one.link.between_hosts, two.link.between_hosts] == [False, True]
    assert two.link.rate == pytest.approx(190e9, rel=0.15)


ROW = "  33554432 8388608 float sum -1 377.6 88.87 155.53 0 377.7 88.85 155.48 0\n"
GATHERED = "  33554432 8388608 float none -1 183.1 183.26 160.35 0 185.1 181.28 158.62 0\n"


def passed_over(text):
    return parse_nccl_tests(text, "out.txt")[0].passed_over


def test_rows_of_0_bytes_are_passed_over():
    zero = "  0 0 float sum -1 5.70 0.00 0.00 0 5.60 0.00 0.00 0\n"

    assert only(ONE.replace("       65536  ", zero + "       65536  ")).rows == only(ONE).rows


def test_a_whole_number_is_the_time_where_the_column_root_is_missing():
    old = "  1073741824 268435456 float sum 11245 95.49 179.04 5e-07 11357 94.54 177.27 5e-07\n"

    (row,) = only(devices(16) + "\n" + old).rows

    assert (row.out_of_place_s, row.in_place_s) == (pytest.approx(11245e-6), pytest.approx(11357e-6))


def test_a_file_may_hold_the_tables_of_several_runs():
    one, two = parse_nccl_tests(ONE + "# Using devices\n" + TWO, "out.txt")

    assert [(each.ranks, each.hosts, each.name) for each in (one, two)] == [
        (8, 1, "out.txt, table 1"),
        (16, 2, "out.txt, table 2"),
    ]


def test_hosts_that_ran_alone_beside_each_other_are_no_run_over_hosts():
    own, other = devices(8).split("\n"), devices(8).replace("node0", "node1").split("\n")
    ranks = "\n".join(line for pair in zip(own, other, strict=True) for line in pair)
    text = f"# nThread 1 nGpus 1\n# nThread 1 nGpus 1\n{ranks}\n{ROW}{ROW.replace('377.6 88.87', '388.9 86.28')}"

    tables = parse_nccl_tests(text, "out.txt")

    assert [(each.ranks, each.hosts, len(each.rows)) for each in tables] == [(8, 1, 1), (8, 1, 1)]
    assert "MPI=1" in tables[0].passed_over[0]


@pytest.mark.parametrize("hosts", [("n0", "n1"), ("n0", "n0"), ("n0", "n1", "n1")])
def test_processes_that_each_ran_alone_are_told_why(hosts):
    listed = "\n".join(
        f"#  Rank  0 Group  0 Pid {pid} on {host} device  0 [0x07] A100" for pid, host in enumerate(hosts)
    )

    with pytest.raises(UsageError, match=r"processes ran alone, as rank 0.*build it with MPI=1"):
        parse_nccl_tests(f"# nThread 1 nGpus 1\n# Using devices\n{listed}\n{ROW}", "out.txt")


@pytest.mark.parametrize("other", ["reduce_scatter_perf", "all_gather_perf", "alltoall_perf"])
def test_rows_of_another_operation_are_passed_over(other):
    others = f"# Collective test starting: {other}\n{GATHERED.replace('none', 'sum')}"

    for text in (
        f"# Collective test starting: all_reduce_perf\n{ONE}{others}",
        f"{others}# Collective test starting: all_reduce_perf\n{ONE}",
    ):
        assert only(text).rows == only(ONE).rows
        assert other in passed_over(text)[0]


def test_of_several_reductions_sums_are_taken():
    text = ONE + ROW.replace("sum", "prod") + ROW.replace("sum", "max")

    assert only(text).rows == only(ONE).rows
    assert "prod of float, max of float are not used" in passed_over(text)[0]


@pytest.mark.parametrize(
    "text", [ONE.replace("155.53      0", "155.53     17"), ONE + "# Out of bounds values : 14 FAILED\n"]
)
def test_a_table_with_wrong_values_is_refused(text):
    assert "wrong values" in mistakes(text)[0]


def test_a_row_that_nccls_log_interrupts_is_passed_over():
    text = ONE.replace("-1    377.6", "-1gpu1:40:41 [0] NCCL INFO Connected all rings\n    377.6")

    assert [row.size for row in only(text).rows] == [65536, 1048576, 1073741824]
    assert "interrupted" in passed_over(text)[0]


def test_what_follows_the_log_within_a_row_is_no_row_of_its_own():
    """Its channel and its number of elements were taken for bytes and elements: a row of 2 bytes."""
    row = "  64  node:12:34 [0] NCCL INFO Channel 00/02 16 float sum -1 287.21 0.00 0.00 0 287.21 0.00 0.00 0\n"
    text = ONE.replace("       65536  ", row + "       65536  ")

    assert only(text).rows == only(ONE).rows
    assert "interrupted" in passed_over(text)[0]


def test_a_row_at_which_a_file_ends_early_is_passed_over():
    text = ONE[: ONE.index("8244.5")]

    assert [row.size for row in only(text).rows] == [65536, 1048576, 33554432]
    assert "ends before" in passed_over(text)[0]


def test_a_table_in_markdown_is_read():
    bars = "\n".join(" | ".join(line.split()) for line in ONE.splitlines() if not line.startswith("#"))

    assert only(devices(8) + "\n" + bars).rows == only(ONE).rows


ROW_OF_JSON = {"count": 1, "type": "float", "redop": "sum", "root": "-1", "in_place": None}


def times_of_json(size):
    return {"time": 10.0, "alg_bw": size / 1e4, "bus_bw": 1.5 * size / 1e4, "nwrong": 0}


def test_json_is_read_with_its_devices():
    data = {
        "args": ["./build/all_reduce_perf", "-J", "out.json"],
        "config": {"nthreads": 1, "ngpus": 1},
        "devices": [{"rank": rank, "hostname": f"n{rank // 2}", "device_info": "NVIDIA H100"} for rank in range(4)],
        "results": [{**ROW_OF_JSON, "size": size, "out_of_place": times_of_json(size)} for size in (0, 65536, 1048576)],
        "out_of_bounds": {"count": 0, "okay": True},
    }

    found = only(json.dumps(data))

    assert (found.ranks, found.hosts, found.device) == (4, 2, "NVIDIA H100")
    assert [(row.size, row.seconds) for row in found.rows] == [
        (65536, pytest.approx(1e-5)),
        (1048576, pytest.approx(1e-5)),
    ]


@pytest.mark.parametrize("value", ["nan", "inf", "1e-320", "-5", "0", "1e300", "9" * 5000])
@pytest.mark.parametrize("place", ["377.6", " 33554432 ", "Rank  7", "nThread 1"])
def test_no_number_ends_in_a_traceback(value, place):
    text = ONE.replace(
        place, place.rstrip("0123456789. ").rstrip() + f" {value} " if place[0].isalpha() else f" {value} "
    )
    with suppress(UsageError):
        parse_nccl_tests(text, "out.txt")


@pytest.mark.parametrize(
    "text", ["{", "{}", '{"results": 5}', '{"results": [{"size": 4}]}', '{"config": {"ranks": 1e12}, "results": []}']
)
def test_json_of_another_form_is_refused(text):
    assert mistakes(text)


def test_a_line_of_16_mib_is_read_as_others_are():
    assert only(ONE + "# Rank 0 on " + "on " * 5_000_000).rows == only(ONE).rows
