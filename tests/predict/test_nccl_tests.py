"""Reading what nccl-tests prints, and the links behind it."""

import pytest

from steptime.errors import UsageError
from steptime.model.nccl import STEP
from steptime.predict.nccl_tests import fit_tables, parse_nccl_tests, read_nccl_tests

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


def mistakes(text):
    with pytest.raises(UsageError) as caught:
        parse_nccl_tests(text, "out.txt")
    return caught.value.mistakes


def test_a_table_has_ranks_hosts_and_the_device():
    found = parse_nccl_tests(ONE, "out.txt")

    assert (found.ranks, found.hosts, found.device) == (8, 1, "NVIDIA A100-SXM4-80GB")


def test_hosts_are_counted_by_their_names():
    assert parse_nccl_tests(TWO, "out.txt").hosts == 2


def test_a_row_has_its_size_and_both_times():
    row = parse_nccl_tests(ONE, "out.txt").rows[0]

    assert (row.size, row.out_of_place_s, row.in_place_s) == (65536, pytest.approx(31.82e-6), pytest.approx(30.24e-6))


def test_busbw_is_computed_as_nccl_tests_does():
    table = parse_nccl_tests(ONE, "out.txt")

    assert table.bus_rate(table.rows[-1]) == pytest.approx(227.8e9, rel=1e-3)


@pytest.mark.parametrize("prefix", ["> ", "[1,0]<stdout>:", " 0: "])
def test_what_a_launcher_puts_before_a_line_is_passed_over(prefix):
    text = "\n".join(prefix + line for line in ONE.splitlines())

    assert parse_nccl_tests(text, "out.txt").rows == parse_nccl_tests(ONE, "out.txt").rows


def test_without_devices_ranks_follow_from_busbw_over_algbw():
    rows = "# nThread 1 nGpus 8\n" + TWO_HOSTS

    found = parse_nccl_tests(rows, "out.txt")

    assert (found.ranks, found.hosts) == (16, 2)


def test_rows_without_a_second_time_are_read():
    found = parse_nccl_tests(devices(8) + "\n 8388608 2097152 float sum -1 80.32 104.44 182.77\n", "out.txt")

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
    (found,) = fit_tables([parse_nccl_tests(ONE, "one")])

    assert not found.link.between_hosts
    assert found.link.rate == pytest.approx(235e9, rel=0.1)
    assert found.link.latency_s == pytest.approx(STEP["nvlink"], rel=1.0)
    assert found.modelled_s == pytest.approx([row.seconds for row in found.table.rows], rel=0.3)


def test_several_files_tell_links_of_both_kinds_apart():
    one, two = fit_tables([parse_nccl_tests(TWO, "two"), parse_nccl_tests(ONE, "one")])

    assert [one.link.between_hosts, two.link.between_hosts] == [False, True]
    assert two.link.rate == pytest.approx(190e9, rel=0.15)
