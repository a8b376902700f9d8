"""Tables for people, in windows of any width."""

import pytest

from steptime.cli.console import print_rows

ROWS = [
    {"trial": "chainer-allreduce-resnet50-w4-b8-2c73235f", "tier": "documented", "ok": 12, "steps": 12000},
    {"trial": "mxnet-ps_sync-lenet5-w2-b64-c7c58ce5", "tier": "tuned", "ok": 3, "steps": 150},
]
COLUMNS = {"trial": "trial", "tier": "tier", "ok": "ok", "steps": "steps"}


def printed(width: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    print_rows(ROWS, COLUMNS, as_json=False)
    return capfd.readouterr().out.splitlines()


@pytest.mark.parametrize("width", [40, 50, 60, 70, 80, 200])
def test_no_column_is_cut_off(width, monkeypatch, capfd):
    titles = next(line for line in printed(width, monkeypatch, capfd) if "trial" in line)
    assert titles.split() == list(COLUMNS.values())


@pytest.mark.parametrize("width", [70, 80, 200])
def test_names_and_words_stay_whole_where_there_is_room(width, monkeypatch, capfd):
    words = " ".join(printed(width, monkeypatch, capfd)).split()
    assert {str(value) for row in ROWS for value in row.values()} <= set(words)


def test_a_name_that_does_not_fit_goes_on_in_the_next_line(monkeypatch, capfd):
    lines = printed(40, monkeypatch, capfd)
    first_column = "".join(line[: line.find("  ", 1)].strip() for line in lines if line.strip())
    assert ROWS[0]["trial"] in first_column
