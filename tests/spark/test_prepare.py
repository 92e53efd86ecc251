"""Processes of tasks import what takes long before they have work."""

import subprocess
import sys
from pathlib import Path

FIRST_EPOCH = """
import sys
from pathlib import Path
from godwit.spark.executors import prepare
prepare()
from tests.support.simulated import simulate, words
sim = simulate(Path(sys.argv[1]), workers=2, bins=16)
known = set(sys.modules)
sim.feed(words("a", "b", "c", "a"))
print(*{name.partition(".")[0] for name in set(sys.modules) - known})
"""


def test_the_first_epoch_of_a_process_imports_none_of_the_large_libraries(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FIRST_EPOCH, str(tmp_path)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert not {*done.stdout.split()} & {"godwit", "numpy", "pandas", "pyspark"}
