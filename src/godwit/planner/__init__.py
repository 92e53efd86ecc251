"""What to move where: the target of a migration, from the load and size of every bin."""

from godwit.planner.assignment import Assignment, intervals_of
from godwit.planner.baselines import even, hashed, hashed_cost, hot_bins
from godwit.planner.bin_assignment import BinAssignment
from godwit.planner.chain import Chain
from godwit.planner.iteration import project
from godwit.planner.markov import markov_step
from godwit.planner.projected import Problem, Projected
from godwit.planner.scattered import scattered
from godwit.planner.sequence import sequence
from godwit.planner.single import single_step
from godwit.planner.transfers import Transfers, transfers

__all__ = [
    "Assignment",
    "BinAssignment",
    "Chain",
    "Problem",
    "Projected",
    "Transfers",
    "even",
    "hashed",
    "hashed_cost",
    "hot_bins",
    "intervals_of",
    "markov_step",
    "project",
    "scattered",
    "sequence",
    "single_step",
    "transfers",
]
