"""A user's own curve that contradicts itself is named with its values, and a measured one is believed."""

from pathlib import Path

import pytest

from steptime.curves.contradictions import jumps
from steptime.curves.curve import EvidenceError
from steptime.curves.table import read_curves, read_own_curves

PUBLISHED = Path(__file__).parent / "data" / "published-scaling.csv"
BOTH = "workers,step_time_s,throughput_samples_per_s,batch_per_worker\n"
NO_BATCH = "workers,step_time_s,throughput_samples_per_s\n"
STEPS = "workers,step_time_s\n"


def read(tmp_path, text):
    path = tmp_path / "own.csv"
    path.write_text(text)
    return read_own_curves(path)


def mistakes(tmp_path, text):
    with pytest.raises(EvidenceError) as caught:
        read(tmp_path, text)
    return caught.value.mistakes


def test_a_step_time_and_a_throughput_that_contradict_each_other_are_named_with_both_values_and_factor(tmp_path):
    (message,) = mistakes(tmp_path, BOTH + "1,0.1,320,32\n2,0.11,5818,32\n")

    for part in ("line 3", "step_time_s is 0.11", "throughput_samples_per_s 5818", "0.011 s, 10 times less"):
        assert part in message


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("1,0.1,320,32\n4,0.12,266.7,32\n", "is the throughput that of one worker, or the batch that of all?"),
        ("1,0.1,320,32\n4,0.12,1066.7,128\n", "is the throughput that of one worker, or the batch that of all?"),
        ("1,100,320,32\n4,120,1066.7,32\n", "as between milliseconds and seconds"),
        ("1,0.1,320,32\n4,0.15,1066.7,32\n", "1.25 times less"),
    ],
)
def test_what_a_contradiction_may_come_from_is_asked(tmp_path, rows, said):
    assert any(said in message for message in mistakes(tmp_path, BOTH + rows))


@pytest.mark.parametrize(
    "rows",
    [
        "1,0.1,320,32\n4,0.12,1066.7,32\n",
        "1,0.1,335,32\n4,0.1,1230,32\n",
        "1,1,30,32\n4,1,120,32\n",
        "1,0.1,,32\n4,0.12,1066.7,32\n",
    ],
)
def test_times_of_a_row_that_differ_by_their_rounding_are_read(tmp_path, rows):
    assert len(read(tmp_path, BOTH + rows)[0].fit) == 2


def test_without_a_batch_rows_that_contradict_each_other_are_named(tmp_path):
    (message,) = mistakes(tmp_path, NO_BATCH + "1,0.1,320\n2,0.11,582\n4,0.12,10666\n")

    assert "is the batch per worker: 32 in line 2 and 320 in line 4, 10 times more" in message
    assert len(read(tmp_path, NO_BATCH + "1,0.1,320\n2,0.11,582\n4,0.12,1066\n")[0].fit) == 3


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ("1,0.2\n2,0.204\n4,210\n", "210 s at 4 workers is 1,029 times the 0.204 s at 2"),
        ("1,200\n2,0.204\n4,0.21\n", "0.204 s at 2 workers is 980 times less than the 200 s at 1"),
        ("1,0.2\n2,204\n4,0.21\n", "204 s at 2 workers is 1,020 times the 0.2 s at 1"),
        ("1,0.2\n2,2.04\n4,0.21\n", "0.21 s at 4 workers is 9.71 times less than the 2.04 s at 2"),
        ("1,0.2\n8,0.204\n512,210\n", "210 s at 512 workers is 1,029 times"),
    ],
)
def test_a_step_that_no_training_takes_is_named(tmp_path, rows, named):
    assert any(named in message for message in mistakes(tmp_path, STEPS + rows))


def test_a_wrong_held_out_row_is_named_too(tmp_path):
    rows = "workers,step_time_s,role\n1,0.2,fit\n2,0.204,fit\n4,210,holdout\n"

    assert "210 s at 4 workers" in mistakes(tmp_path, rows)[0]


def test_steps_that_become_shorter_are_named_strong_scaling(tmp_path):
    assert "strong scaling" in mistakes(tmp_path, STEPS + "1,0.2\n2,0.11\n4,0.06\n")[0]
    assert "strong scaling" in mistakes(tmp_path, NO_BATCH + "1,0.2,320\n2,0.11,582\n4,0.06,1067\n")[-1]


def test_all_published_curves_are_believed():
    assert [sentence for curve in read_curves(PUBLISHED) for sentence in jumps(curve)] == []


@pytest.mark.parametrize("rows", ["1,0.05\n2,3.2\n4,3.9\n", "8,0.3\n16,8.1\n", "1,0.37\n4,4.6\n8,5.3\n"])
def test_a_network_that_is_slow_for_its_devices_is_believed(tmp_path, rows):
    assert len(read(tmp_path, STEPS + rows)[0].fit) >= 2


@pytest.mark.parametrize("text", ["1,120\n2,131\n4,140\n8,151\n", "1,350.5\n2,362\n", "8,12\n64,3e2\n"])
def test_steps_that_may_be_milliseconds_are_asked_about_with_value_column_and_line(text, tmp_path):
    (tmp_path / "own.csv").write_text(f"workers,step_time_s\n{text}")
    (curve,) = read_own_curves(tmp_path / "own.csv")

    value, line = text.split()[-1].partition(",")[2], 1 + len(text.split())
    assert curve.notes[0].startswith(f"step_time_s is {value} in line {line}, read as a step of ")
    assert "if the column is in milliseconds, divide it by 1000" in curve.notes[0]


@pytest.mark.parametrize(
    "text",
    [
        "workers,step_time_s\n8,4.12\n16,4.30\n",
        "workers,step_time_s\n8,9.2\n256,31.4\n",
        "workers,step_time_s,batch_per_worker,throughput_samples_per_s\n1,350,128,0.3657\n2,362,128,0.7072\n",
    ],
)
def test_steps_of_large_models_are_not_asked_about(text, tmp_path):
    (tmp_path / "own.csv").write_text(text)
    (curve,) = read_own_curves(tmp_path / "own.csv")

    assert curve.notes == ()
