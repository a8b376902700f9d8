"""The works of the emulated table are those of the step graphs' tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "model"))
