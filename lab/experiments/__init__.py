"""Experiments: one question each, answered by runs of workloads, in a page and in numbers."""
