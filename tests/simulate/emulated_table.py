"""Steps of PyTorch's DDP that were measured on emulated hosts, and the calibration that they have to follow from.

Milliseconds, unless a name says otherwise; two cores, hosts joined by links of ``rate`` Mbit/s; of 30 steps (LeNet-5:
100) the median of the mean over workers.
"""

CALIBRATION = {
    "lenet5": {2: (7.3, [6.9]), 3: (13.3, [12.9]), 4: (16.9, [16.4])},
    "mlp": {2: (11.6, [7.6, 9.3]), 3: (21.8, [16.5, 18.9]), 4: (24.0, [18.2, 20.3])},
    "small_alexnet": {2: (160.3, [70.4, 158.1]), 3: (318.2, [150.8, 316.3]), 4: (321.5, [138.8, 318.8])},
}
"""By workload and workers: a step whose buckets are not sent, and when each bucket was ready."""

LINKS = {200: (0.27, 191.0), 100: (0.28, 95.7), 50: (0.33, 47.4)}
"""By rate: between two workers, milliseconds of an all-reduce of 1 KiB, and Mbit/s of one of 4 MiB."""

MEASURED = {
    "lenet5": {200: (19.7, 28.7, 31.7), 100: (30.1, 43.2, 48.7), 50: (50.8, 69.4, 77.9)},
    "mlp": {200: (326.9, 437.0, 489.9), 100: (636.8, 854.6, 959.5), 50: (1261.8, 1689.0, 1902.1)},
    "small_alexnet": {200: (329.7, 499.9, 545.0), 100: (590.6, 831.8, 922.2), 50: (1115.7, 1526.6, 1714.3)},
}
"""By workload and rate: steps of 2, 3 and 4 workers."""

CELLS = [
    (workload, rate, workers, measured)
    for workload, by_rate in MEASURED.items()
    for rate, steps in by_rate.items()
    for workers, measured in zip((2, 3, 4), steps, strict=True)
]
