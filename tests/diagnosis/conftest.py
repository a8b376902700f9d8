"""Launches and summaries that are made up next door."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("measurements", "report")]
