"""Sphinx' settings for ``make docs``: Markdown pages, built without a network."""

import re
from pathlib import Path

from sphinx.application import Sphinx

import steptime

project = "steptime"
author = "The steptime developers"
copyright = "2026, The steptime developers"  # noqa: A001 - Sphinx reads this name
version = release = steptime.__version__
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 4
html_theme = "furo"
html_title = f"steptime {release}"
html_show_sourcelink = False
html_copy_source = False


def _download_pages_outside(app: Sphinx, name: str, source: list[str]) -> None:
    """Turn links to Markdown files outside docs/, which are no pages of the site, into downloads."""
    folder = (Path(app.srcdir) / name).parent

    def link(match: re.Match[str]) -> str:
        inside = (folder / match[1]).resolve().is_relative_to(Path(app.srcdir).resolve())
        return match[0] if inside else f"](path:{match[1]})"

    source[0] = re.sub(r"\]\(((?:\.\./)+[^)#\s]+\.md)(?:#[^)]*)?\)", link, source[0])


def setup(app: Sphinx) -> None:
    """Register the hook."""
    app.connect("source-read", _download_pages_outside)
