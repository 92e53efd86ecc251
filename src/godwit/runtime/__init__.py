"""Deciding, computing and publishing epochs, without Spark."""
