"""How often any test can see that each trial drifts by itself, which blocks do not take up.

``python benchmarks/core/seen_correlation.py`` prints a CSV row for each number of launches and trials. Launches of a
trial are normal with a correlation of 0.5 between neighbours, the shape *correlated launches* of noise_shapes.py.
*seen* is the percent of studies in which the best test of this against independent launches finds it, where 5 percent
of studies with independent ones are called so: the likelihood ratio of what trials and blocks leave, whatever its
scale. *wider* is by how much intervals of independent launches would have to be wider if the correlation were taken for
granted. Two launches show nothing: correlated ones are distributed as independent ones of trials that differ.
"""

import sys

import numpy as np

STUDIES = 20_000
CORRELATION = 0.5
CHANCE = 0.05
SIZES = ((3, 2), (3, 4), (4, 8), (6, 4), (10, 4), (6, 16))


def row(launches: int, trials: int) -> str:
    """Return a line of the table."""
    distances = np.abs(np.subtract.outer(np.arange(launches), np.arange(launches)))
    joint = CORRELATION**distances
    basis = np.linalg.svd(np.eye(launches) - 1.0 / launches)[0][:, :-1]  # without the mean of a trial
    residual = basis.T @ joint @ basis
    rng = np.random.default_rng([launches, trials])
    # The effects of blocks take what one trial would show.
    independent = rng.standard_normal((STUDIES, trials - 1, launches - 1))
    correlated = independent @ np.linalg.cholesky(residual).T
    weights = np.linalg.inv(residual)
    ratios = [
        (each**2).sum(axis=(1, 2)) / np.einsum("abi,ij,abj->a", each, weights, each)
        for each in (independent, correlated)
    ]
    seen = np.mean(ratios[1] > np.quantile(ratios[0], 1.0 - CHANCE))
    mean_square = np.trace(residual) / (launches - 1.0)
    wider = np.sqrt(joint.mean() * launches / mean_square)
    return f"{launches},{trials},{100.0 * seen:.0f},{wider:.2f}"


def main() -> None:
    """Print the table."""
    sys.stdout.write("launches,trials,seen,wider\n")
    for launches, trials in SIZES:
        sys.stdout.write(row(launches, trials) + "\n")


if __name__ == "__main__":
    main()
