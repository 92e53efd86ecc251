"""Ctrl-C ends a command quietly, also while it is still loading."""

import subprocess
import sys

import pytest

# Runs the command as its script does. The import of a module sends the signal.
PROGRAM = """
import os, signal, sys
from importlib.metadata import entry_points

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
(script,) = entry_points(group="console_scripts", name="godwit")
sys.exit(script.load()())
"""


@pytest.mark.parametrize("module", ["godwit", "pyspark.sql", "godwit.cli", "godwit.cli.verify"])
def test_an_interrupt_while_modules_are_loaded_is_quiet(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, module], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "")
