"""``make docs`` builds a site without warnings that needs no network."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("sphinx") is None or importlib.util.find_spec("furo") is None,
    reason="Sphinx and Furo are not installed: pip install -e '.[docs]'",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", DOCS, folder / "html"]
    done = subprocess.run([*command, "-d", folder / "trees"], capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_every_page_is_in_the_site_and_can_be_found(site):
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).with_suffix("").as_posix()
        assert (site / f"{name}.html").exists()
        assert f'"{name}"' in index


def test_no_page_loads_anything_from_elsewhere(site):
    loading = re.compile(
        r'<(?:script|img|iframe|source)[^>]*\ssrc="(?:https?:)?//|<link[^>]*rel="(?:stylesheet|preload|preconnect)"[^>]*href="(?:https?:)?//'
    )
    assert [page.name for page in site.rglob("*.html") if loading.search(page.read_text(encoding="utf-8"))] == []
    styles = [*site.rglob("*.css")]
    assert styles
    assert [path.name for path in styles if re.search(r"(?:@import|url\()[^;)]*https?://", path.read_text())] == []
