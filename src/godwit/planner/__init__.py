"""What to move where: the target of a migration, from the load and size of every bin."""

from godwit.planner.assignment import Assignment, intervals_of
from godwit.planner.single import single_step

__all__ = ["Assignment", "intervals_of", "single_step"]
