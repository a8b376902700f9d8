"""A data-parallel trainer in numpy and a workload for it, which steptime finds by entry points."""
