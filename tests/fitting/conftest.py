"""The world whose profiles are fitted is that of the tests of predictions."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "predict"))
