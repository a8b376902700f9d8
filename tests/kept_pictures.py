"""Pictures that were drawn in an earlier test or run, by what they were drawn of.

Drawing takes a tenth of a second of a processor, and a page has up to a hundred pictures. What is kept is what the
library drew; all that steptime does before and behind it happens each time.
"""

import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from steptime.document.charts import chart
from steptime.environments.cache import cache_folder

MOST = 3000
"""Pictures that are kept: some tests draw what they measure, and no two runs measure the same."""
_CLIP = re.compile(r"\bclip\d+\b")
_DRAWN = chart.to_svg
_numbers = itertools.count(10**6)


def keep_pictures() -> None:
    """Let this process draw no picture that is kept; the library is imported by the first test that needs it."""
    folder = cache_folder() / "tests" / "pictures"

    def to_svg(spec: chart.Spec, name: str) -> Any:
        import vl_convert  # noqa: PLC0415 - as in charts

        chart.to_svg = _DRAWN
        vl_convert.vegalite_to_svg = kept(vl_convert.vegalite_to_svg, folder, version("vl-convert-python"))
        return _DRAWN(spec, name)

    chart.to_svg = to_svg


def kept(draw: Callable[..., str], folder: Path, drawn_by: str) -> Callable[..., str]:
    """Return ``draw`` with a memory in ``folder``; names of clip paths are numbered on: those of a page differ."""

    def drawn(spec: chart.Spec, **how: Any) -> str:
        path = folder / f"{hashlib.sha256(json.dumps([drawn_by, spec, how]).encode()).hexdigest()}.svg"
        try:
            text = path.read_text(encoding="utf-8")
            os.utime(path)
        except FileNotFoundError:
            text = draw(spec, **how)
            folder.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(f".{os.getpid()}")
            part.write_text(text, encoding="utf-8")
            part.replace(path)
        names = {name: f"clip{next(_numbers)}" for name in dict.fromkeys(_CLIP.findall(text))}
        return _CLIP.sub(lambda match: names[match[0]], text)

    return drawn


def remove_old_pictures() -> None:
    """Remove those that were asked for the longest time ago, beyond MOST."""
    pictures = list((cache_folder() / "tests" / "pictures").glob("*"))
    if len(pictures) > MOST:
        for path in sorted(pictures, key=_asked_for)[:-MOST]:
            path.unlink(missing_ok=True)


def _asked_for(path: Path) -> float:
    """Return when a picture was last asked for; another run may have removed it just now."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
