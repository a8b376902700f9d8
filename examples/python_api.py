"""Reads a results folder from Python: the ranking, the phases, and a prediction where the study has a breakdown.

``python examples/python_api.py steptime-results/quickstart``
"""

import sys

import polars as pl

import steptime

folder = sys.argv[1]
results = steptime.read_results(folder)

# %% Which trial is fastest?
ranking = results.trials.filter(pl.col("status") == "ok").sort("throughput_samples_per_s_value", descending=True)
print(ranking.select("framework", "strategy", "workload", "workers", "throughput_samples_per_s_value"))

# %% Where does the time of a step go?
print(results.phases.pivot("phase", index="trial", values="value_s"))

# %% What would more workers do?
if len(results.phases):
    profile = steptime.fit(folder)
    predictions = steptime.predict(profile, [2, 4, 8])
    print(predictions.select("framework", "strategy", "workload", "workers", "step_time_s", "refused"))
