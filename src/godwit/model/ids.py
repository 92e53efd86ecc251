"""Ids as types of their own, so that two of them cannot be swapped unnoticed."""

from typing import Final, NewType

Epoch = NewType("Epoch", int)
BinId = NewType("BinId", int)
WorkerId = NewType("WorkerId", int)
SlotId = NewType("SlotId", int)
ExecutorId = NewType("ExecutorId", str)

NO_EXECUTOR: Final = ExecutorId("")  # where it is not known
