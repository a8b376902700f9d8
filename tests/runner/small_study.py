"""The study of one small trial, which tests of a run change in what matters to them."""

STUDY = """\
version: 1
name: small
workloads: [{name: lenet5, batch_per_worker: 4}]
frameworks: [reference]
workers: [1]
loaders: [synthetic]
equivalence: {enabled: false}
launches: {min: 2, max: 2}
seconds_per_launch: 0.1
steps: {warmup: 1, min: 1, max: 2}
"""

CHECKED_STUDY = STUDY.replace("equivalence: {enabled: false}\n", "")
"""The same, with the equivalence check."""
