"""What host agents say arrives whole, however long it is and whoever speaks at the same time."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_bed import ClusterBed, running_bed
from far_messages import VALUE_BYTES, VARIABLES

from steptime.launchers.hosts.connections import Lines
from steptime.launchers.hosts.messages import LONGEST_LINE_BYTES, DamagedMessageError, Joiner, lines_of

FAR_MESSAGES = str(Path(__file__).with_name("far_messages.py"))
LONG = {"host": 1, "said": '"\\é\n' * 3000}
on_a_bed = pytest.mark.needs("hosts", "root")


@pytest.fixture(scope="module")
def bed() -> Iterator[ClusterBed]:
    """Two nodes."""
    with running_bed(2) as made:
        yield made


@on_a_bed
@pytest.mark.parametrize(
    ("reach", "variable"), [("ssh", "MINE=1"), ("slurm", "MINE=1"), ("slurm", "SLURM_UNBUFFEREDIO=1")]
)
def test_long_messages_of_two_hosts_at_once_arrive_whole_both_ways(bed, tmp_path, reach, variable):
    allocation = ["salloc", "-Q", "-N2", "--exclusive"] if reach == "slurm" else []
    done = bed.run(*allocation, "env", variable, sys.executable, FAR_MESSAGES, str(tmp_path), reach, "n0,n1")
    assert done.stdout, done.stderr
    assert json.loads(done.stdout) == {"missing": 0, "failure": None}
    sizes = [json.loads((tmp_path / name).read_text()) for name in ("n0", "n1")]
    assert sizes == [[VALUE_BYTES] * VARIABLES] * 2


def test_no_line_of_a_message_is_longer_than_slurm_leaves_whole():
    lines = lines_of(LONG, 7)
    assert len(lines) > 10
    assert max(map(len, lines)) <= LONGEST_LINE_BYTES


def test_the_pieces_of_two_hosts_may_come_in_turns():
    joiner = Joiner(2)
    other = {**LONG, "host": 0}
    both = [joiner.joined(line) for pair in zip(lines_of(LONG, 1), lines_of(other, 1), strict=True) for line in pair]
    assert [message for _, message in both if message] == [LONG, other]


def test_a_missing_piece_is_an_error():
    joiner = Joiner(2)
    first, _, third, *_ = lines_of(LONG, 1)
    joiner.joined(first)
    with pytest.raises(DamagedMessageError, match=r"piece 3 of \d+ of message 1 came after 1 pieces"):
        joiner.joined(third)


def test_a_torn_message_fails_the_launch_and_is_kept(tmp_path):
    torn = '{"host": 0, "agent": "proxy-0", "on": "n'
    command = [sys.executable, "-c", f"import time; print({torn!r}, flush=True); time.sleep(60)"]
    with Lines({"srun": command}, ["n0"], tmp_path) as lines:
        while (failure := lines.failure()) is None:
            assert lines.receive() is None
    assert failure.startswith("the line to srun damaged a message: a line is not JSON")
    assert (tmp_path / "srun.launch").read_text() == f"{torn}\n"


def test_the_greeting_of_a_login_shell_is_kept_and_harms_nothing(tmp_path):
    ready = '{"host": 0, "ready": {}}'
    program = f"import time; print('Welcome!', 7, {ready!r}, sep=chr(10), flush=True); time.sleep(60)"
    with Lines({"host-n0": [sys.executable, "-c", program]}, ["n0"], tmp_path) as lines:
        lines.gather("ready", 30.0)
        assert lines.failure() is None
    assert (tmp_path / "host-n0.launch").read_text() == "Welcome!\n7\n"
