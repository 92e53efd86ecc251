"""Where workers run, as values without I/O: slots, handovers, which executors keep replicas."""
