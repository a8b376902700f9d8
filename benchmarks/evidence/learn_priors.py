"""Learn the beliefs of src/steptime/curves/priors.json again: once without each source, and once from all.

    python benchmarks/evidence/learn_priors.py [POINTS.csv ...]

Takes about six minutes of two cores. Run it after a change of the curve model or of its expert beliefs.
"""

import sys
from pathlib import Path

from learning import learn_by_source, to_json

from steptime.curves.table import read_curves

ROOT = Path(__file__).parents[2]
POINTS = (
    ROOT / "tests" / "curves" / "data" / "published-scaling.csv",
    Path(__file__).with_name("added-curves.csv"),
)
PRIORS = ROOT / "src" / "steptime" / "curves" / "priors.json"
NOTE = (
    "Learned by benchmarks/evidence/learn_priors.py from the published curves of tests/curves/data/README.md "
    "and of benchmarks/evidence/README.md. Each entry, mean and spread behind the parameter's link, was learned "
    "without the source that it is named after, the one under the empty name from all."
)


def main() -> None:
    """Learn and write."""
    tables = [Path(each) for each in sys.argv[1:]] or POINTS
    curves = [curve for table in tables for curve in read_curves(table)]
    PRIORS.write_text(to_json(learn_by_source(curves), NOTE))
    print(f"wrote {PRIORS}")


if __name__ == "__main__":
    main()
