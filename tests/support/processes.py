"""Processes that are there at once: forks of one that has imported what they need."""

import multiprocessing
from multiprocessing.context import ForkServerContext
from typing import Final

_IMPORTED: Final = ("pytest", "hypothesis", "godwit", "tests.support.log_samples")


def forks() -> ForkServerContext:
    """Where tests get processes from; the first test of a process starts the one that is forked."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*_IMPORTED])
    return context
