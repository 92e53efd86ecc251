"""What workloads, experiments and benchmarks share: each tool once."""
