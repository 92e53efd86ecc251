"""The lab: workloads, experiments and benchmarks of Godwit, outside of its wheel."""
