"""For tests of one's own operators: epochs without Spark."""

from godwit.testing.simulation import Simulation

__all__ = ["Simulation"]
