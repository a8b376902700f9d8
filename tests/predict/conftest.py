"""What the tests of profiles share."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[1] / name) for name in ("predict", "fitting")]
