"""Learn the beliefs of src/steptime/predict/curve/priors.json again: once without each source, and once from all.

    python benchmarks/evidence/learn_priors.py [POINTS.csv]

Takes about a minute and a half of one core. Run it after a change of the curve model or of its expert beliefs.
"""

import sys
from pathlib import Path

from learning import learn_by_source, to_json

from steptime.predict.curve.table import read_curves

ROOT = Path(__file__).parents[2]
POINTS = ROOT / "tests" / "evidence" / "data" / "published-scaling.csv"
PRIORS = ROOT / "src" / "steptime" / "predict" / "curve" / "priors.json"
NOTE = (
    "Learned by benchmarks/evidence/learn_priors.py from the published curves of tests/evidence/data/README.md. "
    "Each entry, mean and spread behind the parameter's link, was learned without the source that it is named after, "
    "the one under the empty name from all."
)


def main() -> None:
    """Learn and write."""
    curves = read_curves(Path(sys.argv[1]) if len(sys.argv) > 1 else POINTS)
    PRIORS.write_text(to_json(learn_by_source(curves), NOTE))
    print(f"wrote {PRIORS}")


if __name__ == "__main__":
    main()
