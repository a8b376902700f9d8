"""What the network benchmark found, in a table and on a page."""

import io

import pytest
from messages import launch, setting
from rich.console import Console

from steptime.analysis.summary import summarise
from steptime.document.number_format import UNKNOWN
from steptime.model.measured_links import net_summary
from steptime.report.links import link_section, operation_row
from steptime.report.page import page_text, write_page
from steptime.report.sections import StudyFindings
from steptime.report.terminal import SectionText
from steptime.results.json_form import Interval
from steptime.results.store import Store

ALPHA, BANDWIDTH, BUS = 2, 4, 5
"""Places of cells in the row of an operation."""


def gloo_like(workers: int):
    return lambda size: 4 * (workers - 1) * 1e-3 + 2 * (workers - 1) / workers * size / 12.5e6


def found():
    """Two back ends, one with two and three workers, and one that was wrong; and one on emulated hosts."""
    launches = [launch(setting(p), k, gloo_like(p), noise=0.01, hosts=False) for p in (2, 3) for k in range(3)]
    other = setting(2, "incast", back_end="another")
    launches += [launch(other, k, lambda size: 2e-3 + size / 1e7, noise=0.01, hosts=False) for k in range(3)]
    launches.append(launch(setting(2, back_end="errs"), 0, gloo_like(2), status="wrong", wrong=1, hosts=False))
    return launches


def printed(width: int) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(SectionText([link_section(net_summary(found()))]))
    return console.export_text()


@pytest.mark.parametrize("width", [50, 80, 120, 220])
def test_the_table_fits_and_says_the_same_in_every_width(width):
    text = printed(width)
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    for words in ("made-up", "another", "errs", "100 Mbit/s", "because"):
        assert words in text
    if width == 220:
        assert "16 KiB" in text


def test_a_number_comes_with_its_interval_and_the_unit_once():
    (row,) = net_summary([launch(setting(2), k, gloo_like(2), noise=0.01) for k in range(3)]).rows
    bandwidth = operation_row(row).cells[BANDWIDTH]
    assert bandwidth.text.endswith("Mbit/s")
    assert " to " in bandwidth.interval
    assert "Mbit/s" not in bandwidth.interval


@pytest.mark.parametrize("workers", [2, 3])
def test_bus_bandwidth_is_that_of_nccl_tests(workers):
    (row,) = net_summary([launch(setting(workers), k, gloo_like(workers)) for k in range(3)]).rows
    for size in row.sizes:
        algorithm = size.bytes / gloo_like(workers)(size.bytes)
        assert size.bus_bytes_per_s.value == pytest.approx(algorithm * 2 * (workers - 1) / workers, rel=0.05)
        assert size.bus_bytes_per_s.value * size.time_s.value == pytest.approx(size.bytes * 2 * (workers - 1) / workers)
    assert operation_row(row).cells[BUS].text.endswith("bit/s")


def test_what_is_no_all_reduce_has_no_bus_bandwidth():
    rows = net_summary([launch(setting(2, "incast"), k, gloo_like(2)) for k in range(3)]).rows
    assert {size.bus_bytes_per_s.value for size in rows[0].sizes} == {None}
    assert operation_row(rows[0]).cells[BUS].text == UNKNOWN


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (4e-4, 1.5e-3, "1.00 ms (0.40 to 1.50)"),
        (2e-4, 1.5e-3, "inconclusive (200 µs to 1.5 ms)"),
        (1e-9, 1e3, "inconclusive (0.001 µs to 16 min 40 s)"),
        (0.0, 2e-3, "inconclusive (at most 2 ms)"),
        (-1e-3, 2e-3, "inconclusive (at most 2 ms)"),
    ],
)
def test_a_number_whose_interval_is_too_wide_is_not_shown(low, high, text):
    (row,) = net_summary([launch(setting(2), k, gloo_like(2)) for k in range(3)]).rows
    wide = row.model_copy(update={"alpha_s": Interval(value=1e-3, low=low, high=high)})
    assert operation_row(wide).cells[ALPHA].line == text


def test_an_interval_without_an_end_has_its_beginning():
    (row,) = net_summary([launch(setting(2), k, gloo_like(2)) for k in range(3)]).rows
    open_ended = row.fit.model_copy(update={"bandwidth_bytes_per_s": Interval(value=1e6, low=5e5, high=None)})
    shown = operation_row(row.model_copy(update={"fit": open_ended}))
    assert shown.cells[BANDWIDTH].interval == "4 Mbit/s or more"


def store_with(folder, launches) -> Store:
    store = Store.create(folder, study_text="#", study_json={"name": "net", "question": "How long?"})
    for each in launches:
        store.append_net(each)
    return store


def test_the_store_gives_back_what_it_was_given(tmp_path):
    launches = found()
    assert store_with(tmp_path / "found", launches).net() == launches


def test_the_page_has_a_chart_for_every_operation_and_number_of_workers(tmp_path):
    store = store_with(tmp_path / "found", found())
    write_page(store, StudyFindings(summarise(store), net_summary(store.net())), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    for title in ("allreduce, 2 workers", "allreduce, 3 workers", "incast, 2 workers"):
        assert f"<figcaption>{title}</figcaption>" in page
    assert "wrong: because" in page
    assert 'id="links"' in page
    # Nothing was trained, and nothing is said about it.
    assert 'id="equivalence"' not in page
    assert len(page) < 300_000


def test_a_page_without_messages_says_nothing_of_links(tmp_path):
    store = store_with(tmp_path / "found", [])
    page = page_text(StudyFindings(summarise(store), study_text="#"), "here")
    assert 'id="links"' not in page
    assert 'id="equivalence"' in page
