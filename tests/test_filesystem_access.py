"""Who may know filesystems: `godwit.storage`, and modules whose files are of no checkpoint."""

import ast
from pathlib import Path

import pytest

import godwit

SOURCE = Path(godwit.__file__).parent
FILESYSTEMS = {"os", "pathlib", "shutil", "tempfile", "glob", "io.open", "fsspec", "pyarrow.fs"}

# What opens a file by its path, of Python and of Arrow.
OPENING = {"open", "pa.memory_map", "pa.OSFile", "pq.ParquetFile", "pq.ParquetWriter"}
OPENING |= {"pq.read_metadata", "pq.read_schema", "pq.read_table", "pq.write_table"}

# Names of `os` that are of processes, or of text.
HARMLESS = {"PathLike", "fspath", "getpid", "kill"}

CACHE = "the cache of an executor: scratch on its own disk"
PROCESSES = "processes and their environment"
USERS_FILES = "files that a user names on the command line"
OPENED = "files that a store has opened"
WRITTEN = "directories that tasks write to, which `storage` looks at"
PROJECTIONS = "directories of `godwit project`, which the user names"

EXEMPT = {
    "api/query.py": PROJECTIONS,
    "cli/__init__.py": PROCESSES,
    "cli/apply.py": USERS_FILES,
    "cli/output.py": USERS_FILES,
    "cli/plan.py": USERS_FILES,
    "cli/project.py": PROJECTIONS,
    "cli/state.py": USERS_FILES,
    "faults.py": "marks of faults that a test wants, in a directory of its own",
    "inspect/prometheus.py": "a file for Prometheus, which the user names",
    "planner/chain.py": PROJECTIONS,
    "planner/iteration.py": PROJECTIONS,
    "planner/projected.py": PROJECTIONS,
    "planner/work.py": PROJECTIONS,
    "spark/hosts.py": WRITTEN,
    "spark/keeper_start.py": CACHE,
    "spark/peer_secret.py": "a directory of keytool's on the driver, for a moment",
    "spark/session.py": PROCESSES,
    "spark/start.py": CACHE,
    "spark/unread_files.py": "directories that sources read",
    "spark/sinks/delta.py": WRITTEN,
    "spark/sinks/delta_files.py": "directories of a table on a local disk, and one for a trial",
    "spark/sinks/files.py": "directories that Spark writes and a sink shows as a whole",
    "spark/sinks/iceberg.py": WRITTEN,
    "spark/sinks/sink.py": WRITTEN,
    "spark/sinks/store_files.py": "files that a store has opened, and directories as above",
    "spark/sinks/table.py": WRITTEN,
    "state/cache.py": CACHE,
    "state/draft.py": CACHE,
    "state/output.py": OPENED,
    "state/rate_limit.py": CACHE,
    "testing/simulation.py": CACHE,
    "worker/executor_process.py": PROCESSES,
    "worker/keeper.py": CACHE,
    "worker/neighbours.py": "the socket of a keeper, in the cache of its executor",
    "worker/peer_key.py": "a file in memory, of which TLS reads its key",
    "worker/peer_wire.py": CACHE,
}

LINKING = {"state/output.py", "state/cache.py"}  # to files that a sink or a cache shares


def imported(path: Path) -> set[str]:
    """What a module imports of filesystems, and calls `open` of."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            names = {"os"} if {alias.name for alias in node.names} - HARMLESS else set()
        elif isinstance(node, ast.ImportFrom):
            names = {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in OPENING:
            names = {"io.open"}
        else:
            continue
        found |= {one for one in FILESYSTEMS for name in names if f"{name}.".startswith(f"{one}.")}
    return found


def knowing() -> dict[str, set[str]]:
    modules = {path.relative_to(SOURCE).as_posix(): path for path in SOURCE.rglob("*.py")}
    found = {name: imported(path) for name, path in modules.items()}
    return {n: what for n, what in found.items() if what and not n.startswith("storage/")}


def test_only_storage_knows_filesystems_for_checkpoints() -> None:
    for name, what in knowing().items():
        assert name in EXEMPT, (
            f"src/godwit/{name} uses {', '.join(sorted(what))}. Files of a checkpoint are reached "
            "through godwit.storage.Store; if these are no such files, say here what they are"
        )


def test_every_exemption_is_needed() -> None:
    assert EXEMPT.keys() - knowing().keys() == set()


def test_a_local_path_is_asked_for_in_order_to_link_and_nowhere_else() -> None:
    asking = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if ".local_path(" in path.read_text()
    }
    assert asking == LINKING


@pytest.mark.parametrize(
    "line",
    [
        "import os",
        "import os.path",
        "from os import path",
        "from pathlib import Path",
        "from pyarrow import fs",
        "from pyarrow.fs import LocalFileSystem",
        "open('x')",
        "pa.memory_map('x')",
        "pq.ParquetFile('x')",
    ],
)
def test_what_knows_a_filesystem_is_noticed(tmp_path: Path, line: str) -> None:
    (tmp_path / "module.py").write_text(f"def f():\n    {line}\n")
    assert imported(tmp_path / "module.py")
    (tmp_path / "module.py").write_text("from os import getpid\n")
    assert not imported(tmp_path / "module.py")
