"""Pages that are made up next door."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "report"))
