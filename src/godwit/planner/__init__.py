"""What to move where: the target of a migration, from the load and size of every bin."""

from godwit.planner.assignment import Assignment, intervals_of
from godwit.planner.placement import Placement
from godwit.planner.scattered import scattered
from godwit.planner.single import single_step

__all__ = ["Assignment", "Placement", "intervals_of", "scattered", "single_step"]
