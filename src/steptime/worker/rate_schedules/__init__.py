"""Learning-rate schedules: pure functions of the step, the same numbers in every framework.

Each returns a factor of the learning rate. ``table.py`` has them all, and adds the warm-up.
"""
