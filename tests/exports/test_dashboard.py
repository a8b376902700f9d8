"""Grafana's dashboard: of the form that Grafana publishes, and each of its questions answered by a real Prometheus.

Its run is a real one of two ranks; what is answered is read on Prometheus' own page, in a browser.
"""

import contextlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from launching import interpreter_for
from test_tracker_pages import until

from browsing import started_browser
from kubernetes_schemas import mistakes

ROOT = Path(__file__).parents[2]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "docs" / "grafana.json").read_text())
SCHEMAS: dict[str, Any] = json.loads(Path(__file__).with_name("grafana_schemas.json").read_text())
"""Of Grafana's published schemas what the dashboard uses, and what they require and have no default for."""
PANELS = {panel["title"]: panel for panel in DASHBOARD["panels"]}
ROWS = "return [...document.querySelectorAll('tr')].map(row => row.innerText).filter(text => text.includes('{'))"


def without(value: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: inner for key, inner in value.items() if key not in keys}


def test_the_dashboard_is_of_the_published_form():
    whole = without(DASHBOARD, "panels")
    variables = [without(each, "query") for each in whole["templating"]["list"]]  # text, or any object
    assert mistakes(SCHEMAS["dashboard"], whole | {"templating": {"list": variables}}) == []


@pytest.mark.parametrize("title", PANELS)
def test_a_panel_is_of_the_published_form(title):
    panel = PANELS[title]
    assert mistakes(SCHEMAS["panels"][panel["type"]], without(panel, "transformations")) == []


@pytest.mark.parametrize("title", PANELS)
def test_a_panel_asks_the_source_that_is_chosen(title):
    asked = [PANELS[title]["datasource"], *(target["datasource"] for target in PANELS[title]["targets"])]
    assert asked == [{"type": "prometheus", "uid": "${source}"}] * len(asked)


def test_no_panel_covers_another():
    places = [each["gridPos"] for each in PANELS.values()]
    cells = [
        (x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))


class AsText(SimpleHTTPRequestHandler):
    """Serves files as text of Prometheus."""

    def guess_type(self, path: Any) -> str:
        del path
        return "text/plain; version=0.0.4"

    def log_message(self, *words: Any) -> None:
        pass


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run of two ranks, written for Prometheus by the attached command itself."""
    folder = tmp_path_factory.mktemp("attached")
    ranks = [interpreter_for("pytorch"), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    words = [sys.executable, "-m", "steptime", "attach", "--to", "prometheus", "-o", folder / "run", "--"]
    subprocess.run([*words, *ranks, ROOT / "examples" / "slow_script.py"], cwd=folder, check=True, timeout=300)
    return folder / "run"


@pytest.fixture(scope="module")
def prometheus(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus that scrapes the text of the run."""
    folder = tmp_path_factory.mktemp("prometheus")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with HTTPServer(("127.0.0.1", 0), partial(AsText, directory=run)) as text:
        thread = threading.Thread(target=text.serve_forever)
        thread.start()
        targets = f"static_configs: [{{targets: ['127.0.0.1:{text.server_port}']}}]"
        job = f"{{job_name: here, metrics_path: /metrics.prom, {targets}}}"
        (folder / "prometheus.yml").write_text(f"global: {{scrape_interval: 1s}}\nscrape_configs: [{job}]\n")
        words = [f"--config.file={folder}/prometheus.yml", f"--web.listen-address={address}"]
        with (folder / "server.log").open("w") as log:
            process = subprocess.Popen(["prometheus", *words, f"--storage.tsdb.path={folder}/data"], stderr=log)
        try:
            until(lambda: asked(address, "steptime_run_info"), folder)
            yield address
        finally:
            process.terminate()
            process.wait()
            text.shutdown()
            thread.join()


def asked(address: str, query: str) -> list[dict[str, Any]]:
    """Return what a Prometheus answers; nothing as long as it does not."""
    page = f"http://{address}/api/v1/query?{urlencode({'query': query})}"
    with contextlib.suppress(OSError), urlopen(page) as answer:
        rows: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return rows
    return []


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with started_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.mark.framework("pytorch")
@pytest.mark.needs("prometheus", "browser")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("title", PANELS)
def test_what_a_panel_asks_has_an_answer_on_the_page_of_prometheus(title, prometheus, browser, tmp_path):
    for target in PANELS[title]["targets"]:
        query = target["expr"].replace("$run", ".*")
        rows = asked(prometheus, query)
        browser.get(f"http://{prometheus}/graph?{urlencode({'g0.expr': query, 'g0.tab': 1})}")
        shown = until(lambda: browser.execute_script(ROWS), tmp_path)
        assert len(shown) == len(rows) > 0
        for row in rows:
            labels = [f'{name}="{value}"' for name, value in row["metric"].items() if name != "__name__"]
            assert any(all(label in text for label in labels) for text in shown)
