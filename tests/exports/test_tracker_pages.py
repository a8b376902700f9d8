"""An attached run in the pages of MLflow and TensorBoard themselves, in a browser."""

import contextlib
import importlib.metadata
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.request import urlopen

import pytest
from test_trackers import SLOW_S, SLOW_STEP, ask, attached_folder

from browsing import started_browser
from steptime.environments.cache import cache_folder

pytestmark = [pytest.mark.needs("browser"), pytest.mark.filterwarnings("default"), pytest.mark.timeout(900)]
LONGEST_S = 180.0
Shown = TypeVar("Shown")


@contextlib.contextmanager
def served(words: Sequence[str | Path], folder: Path) -> Iterator[str]:
    """Start a server with ``--port``, and yield its address as soon as it answers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [*map(str, words), "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"

    def answer() -> bool:
        with contextlib.suppress(OSError), urlopen(address, timeout=10.0) as page:
            return page.status == 200
        return False

    try:
        until(answer, folder)
        yield address
    finally:
        process.terminate()
        process.wait()


def until(shown: Callable[[], Shown], folder: Path) -> Shown:
    """Return what is shown as soon as something is; what a server of ``folder`` said is shown where nothing is."""
    deadline = time.monotonic() + LONGEST_S
    while time.monotonic() < deadline:
        if found := shown():
            return found
        time.sleep(0.2)
    log = folder / "server.log"
    pytest.fail(f"nothing is shown; {log.read_text()[-2000:] if log.exists() else ''}")


def whole_mlflow() -> Path:
    """Return the program `mlflow` with its pages, which the package of clients lacks, in an environment of its own."""
    version = importlib.metadata.version("mlflow-skinny")
    place = cache_folder() / "tests" / f"mlflow-{version}"
    if not (place / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
        install = [place / "bin" / "python", "-m", "pip", "install", "-q", f"mlflow=={version}"]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"missing the whole of MLflow: {done.stderr.splitlines()[-1]}")
        (place / "ready").touch()
    return place / "bin" / "mlflow"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with started_browser(tmp_path_factory.mktemp("profile")) as driver:
        driver.set_window_size(1300, 1400)
        yield driver


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An attached run."""
    return attached_folder(tmp_path_factory.mktemp("trackers") / "run")


@pytest.fixture(scope="module")
def sentences(run: Path) -> list[str]:
    """Its findings."""
    return [each["sentence"] for each in json.loads(ask("report", run, "--json").stdout)["attached"]["findings"]]


@pytest.fixture(scope="module")
def mlflow(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the run's page in MLflow, whose server wrote it."""
    folder = tmp_path_factory.mktemp("server")
    words = [whole_mlflow(), "server", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--workers", "1"]
    with served(words, folder) as address:
        done = ask("report", run, "--to", f"mlflow={address}")
        assert done.exit_code == 0, done.output
        key = done.stderr.rpartition("run ")[2].split()[0]
        yield f"{address}/#/experiments/1/runs/{key}"


CHARTS = """
const title = element => (element.innerText.match(/steptime\\S*/) || [title(element.parentElement)])[0]
return [...document.querySelectorAll('.js-plotly-plot')].filter(e => e.data && e.data[0] && e.data[0].y)
    .map(e => [title(e), [...e.data[0].x], [...e.data[0].y]])
"""
TITLES = """
const titles = [...document.querySelectorAll('tb-truncated-path')].map(e => e.textContent.trim())
return titles.length < 4 ? [] : titles.slice(0, 4)
"""
ALL_TEXT = """
const inside = root => [...root.querySelectorAll('*')].map(
    e => e.shadowRoot ? inside(e.shadowRoot) : e.contentDocument ? inside(e.contentDocument) : ''
).join('\\n') + '\\n' + (root.body || root).textContent
return inside(document)
"""


def test_the_first_charts_of_mlflow_are_of_the_step_and_show_the_slow_one(mlflow, browser, tmp_path):
    browser.get(f"{mlflow}/model-metrics")
    charts = until(
        lambda: (shown := browser.execute_script(CHARTS)) * any("longest" in name for name, _, _ in shown), tmp_path
    )
    assert all("steptime/step_s/" in name for name, _, _ in charts)
    (longest,) = ((steps, values) for name, steps, values in charts if "longest" in name)
    assert max(longest[1]) == pytest.approx(SLOW_S)
    assert longest[0][longest[1].index(max(longest[1]))] == SLOW_STEP


def test_the_page_of_the_run_in_mlflow_shows_the_findings(mlflow, browser, sentences, tmp_path):
    browser.get(mlflow)
    shown = until(
        lambda: (text := browser.execute_script("return document.body.innerText")) * (sentences[0] in text), tmp_path
    )
    assert all(sentence in shown for sentence in sentences)


@pytest.fixture(scope="module")
def tensorboard(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of TensorBoard, which reads what was written of the run."""
    folder = tmp_path_factory.mktemp("tensorboard")
    assert ask("report", run, "--to", f"tensorboard={folder / 'runs'}").exit_code == 0
    with served([Path(sys.executable).with_name("tensorboard"), "--logdir", folder / "runs"], folder) as address:
        yield address


def test_the_first_cards_of_tensorboard_are_of_the_step(tensorboard, browser, tmp_path):
    browser.get(f"{tensorboard}/#timeseries")
    titles = until(lambda: browser.execute_script(TITLES), tmp_path)
    assert all(title.startswith("steptime/step_s/") for title in titles)


def test_the_page_of_texts_in_tensorboard_shows_the_findings(tensorboard, browser, sentences, tmp_path):
    browser.get(f"{tensorboard}/#text")
    shown = until(lambda: (text := browser.execute_script(ALL_TEXT)) * (sentences[0] in text), tmp_path)
    assert all(sentence in shown for sentence in sentences)
