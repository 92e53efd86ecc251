"""Workloads that the field knows, written on Godwit's operators."""
