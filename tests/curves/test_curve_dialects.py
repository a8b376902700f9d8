"""Tables of curves as spreadsheets and data frames write them: what is unambiguous is read, the rest is named."""

import pytest

from steptime.curves.curve import EvidenceError
from steptime.curves.table import read_own_curves

PLAIN = "workers,throughput_samples_per_s,batch_per_worker\n1,641,64\n4,2380,64\n8,4419.71,64\n"
INDEXED = ",workers,throughput_samples_per_s,batch_per_worker\n0,1,641,64\n1,4,2380,64\n2,8,4419.71,64\n"


def curve(tmp_path, text, name="own.csv"):
    path = tmp_path / name
    path.write_bytes(text.encode("utf-8") if isinstance(text, str) else text)
    (found,) = read_own_curves(path)
    return found


def mistakes(tmp_path, text):
    with pytest.raises(EvidenceError) as caught:
        curve(tmp_path, text)
    return caught.value.mistakes


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(PLAIN.replace("\n", "\r\n") + ",,\r\n,,\r\n", id="blank rows"),
        pytest.param("# ResNet-50\n" + PLAIN + "# end\n", id="comments"),
        pytest.param("\n\n" + PLAIN, id="blank lines first"),
        pytest.param(PLAIN.replace("workers,", "Workers,").replace("batch_per", "Batch per"), id="capitals and blanks"),
        pytest.param(PLAIN.replace(",", "\t"), id="tabs"),
        pytest.param(PLAIN.replace(",", ";").replace(".", ","), id="semicolons and decimal commas"),
        pytest.param(INDEXED, id="index"),
        pytest.param(PLAIN.replace("2380", '"2,380"').replace("4419.71", '"4,419.71"'), id="separated thousands"),
        pytest.param(PLAIN.replace("2380", "2 380").replace("4419.71", "4'419.71"), id="blanks in thousands"),
        pytest.param(PLAIN.replace("641", "0.641k").replace("4419.71", "4.41971k"), id="k"),
        pytest.param(PLAIN.replace(",64\n", ",64.0\n").replace("\n8,", "\n8.0,"), id="whole numbers as floats"),
        pytest.param(PLAIN.replace("_worker\n", "_worker,\n").replace(",64\n", ",64,\n"), id="comma at the end"),
        pytest.param("\ufeff" + PLAIN.replace("\n", "\r"), id="byte order mark and old ends of lines"),
    ],
)  # fmt: skip
def test_a_table_is_read_as_the_plain_one(tmp_path, text):
    assert curve(tmp_path, text).fit == curve(tmp_path, PLAIN).fit


def test_a_number_of_two_readings_is_named(tmp_path):
    text = PLAIN.replace("2380", '"2,380"').replace("4419.71", "4419")
    (mistake,) = mistakes(tmp_path, text)

    assert "line 3: throughput_samples_per_s is '2,380'" in mistake
    assert mistake.endswith("write 2380 if the comma separates thousands, or 2.380 if it is a decimal mark")


def test_lines_are_counted_with_comments(tmp_path):
    assert "line 4: workers" in mistakes(tmp_path, "# one\n" + PLAIN.replace("4,2380", "x,2380"))[0]


def test_repeated_counts_are_one_point_and_said(tmp_path):
    found = curve(tmp_path, "workers,step_time_s\n1,0.2\n2,0.2\n2,0.242\n4,0.25\n")

    assert [point.step_time for point in found.fit] == pytest.approx([0.2, 0.22, 0.25])
    assert found.notes == ("2 workers were measured 2 times, 1.21 times apart; their geometric mean counts",)


def test_columns_under_other_names_are_asked_for(tmp_path):
    (message,) = mistakes(tmp_path, "gpus,images_per_sec,batch_size\n1,641,64\n4,2380,64\n")

    for name in ("rename 'gpus' to workers", "rename 'images_per_sec'", "rename 'batch_size' to batch_per_worker"):
        assert name in message


def test_throughput_that_does_not_grow_is_asked_for_and_not_believed(tmp_path):
    text = "workers,throughput_samples_per_s,batch_per_worker\n1,641,64\n4,595,64\n8,552.4,64\n"

    assert "if throughput_samples_per_s is that of one worker" in mistakes(tmp_path, text)[0]


def test_step_times_that_grow_with_workers_are_believed(tmp_path):
    assert len(curve(tmp_path, "workers,step_time_s\n1,0.1\n4,0.43\n8,0.93\n").fit) == 3


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("workers,step_time_s\n1,2,500\n2,2,750\n4,3,100\n", id="decimal commas"),
        pytest.param("workers,step_time_s\n1,0.25\n2,1,024\n", id="separated thousands of one row"),
        pytest.param('"workers","step_time_s"\n"1",1,0.25\n"2",2,0.27\n', id="names of rows as R writes them"),
        pytest.param("workers;step_time_s\n1;0,25;warm\n2;0,27;cold\n", id="notes without a column"),
        pytest.param(PLAIN.replace(",64\n", ",64,0\n"), id="an index at the end"),
    ],
)
def test_cells_beyond_the_header_are_refused_with_their_line(tmp_path, text):
    found = mistakes(tmp_path, text)

    assert found[0].startswith(f"{tmp_path / 'own.csv'}, line ")
    assert "cells under" in found[0]


def test_decimal_commas_without_quotes_are_named_as_such(tmp_path):
    (first, _) = mistakes(tmp_path, "workers,step_time_s\n1,2,500\n2,2,750\n")

    assert "line 2: '1,2,500' has 3 cells under 2 columns; if a comma is the decimal mark" in first


def test_empty_cells_beyond_the_header_are_no_mistake(tmp_path):
    assert curve(tmp_path, PLAIN.replace(",64\n", ",64,,\n")).fit == curve(tmp_path, PLAIN).fit


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[{"workers": 1, "step_time_s": 0.12}]', "this is JSON, not a CSV"),
        ('{"workers": [1, 2]}', "this is JSON, not a CSV"),
        ("| workers | step_time_s |\n|---|---|\n| 1 | 0.12 |\n", "a table of Markdown"),
        ("workers step_time_s\n1 0.12\n2 0.13\n", "as workers,step_time_s"),
        ("<table><tr><td>1</td></tr></table>", "HTML or XML"),
        (b"\x1f\x8b\x08\x00\xfe\xfe", "a file of gzip; unpack it"),
        (b"PK\x03\x04\xfe\xfe", "spreadsheets (.xlsx)"),
        ("workers,step_time_s\n1,0.12\n".encode("utf-16"), "UTF-16"),
        ("workers,step_time_ms\n1,120\n2,131\n", "write 'step_time_ms' as step_time_s, divided by 1000"),
        ("gpus,img/sec\n1,400\n2,790\n", "rename 'img/sec' to throughput_samples_per_s"),
        ("gpus,time/step\n1,112ms/step\n", "write 'time/step' as step_time_s, divided by 1000"),
        ("nodes,gpus_per_node,throughput,batch_size\n1,4,5100,256\n", "write nodes x workers of each node as workers"),
        ("workers,step_time_s\n1,120 ms\n2,131 ms\n", "write 0.12, in seconds and without a unit"),
        ("workers,step_time_s\n1,0.120 ± 0.003\n2,0.131\n", "write the mean alone"),
        ("workers,step_time_s\n1,OOM\n2,0.131\n", "or leave the row out"),
    ],
)
def test_what_is_written_otherwise_is_named_with_the_next_step(tmp_path, text, said):
    assert said in mistakes(tmp_path, text)[0]
