"""A real browser for tests, without a window."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --force-color-profile=srgb"
)


@contextlib.contextmanager
def started_browser(profile: Path) -> Iterator[Any]:
    """Start the browser with a fresh ``profile``; it keeps a log of its console and of what it loads."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="missing selenium: pip install selenium")
    options = webdriver.ChromeOptions()
    options.binary_location = PROGRAM
    for flag in [*FLAGS.split(), f"--user-data-dir={profile}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
    try:
        yield driver
    finally:
        driver.quit()
