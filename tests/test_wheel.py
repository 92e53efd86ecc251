"""What users install: the library, its types and its command, and nothing else of this checkout."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[1]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
METADATA = f"godwit-{VERSION}.dist-info"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel of this checkout, built in this process: no network, no environment of its own."""
    (path,) = WheelBuilder(str(ROOT)).build(
        directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"]
    )
    return zipfile.ZipFile(path)


def test_it_has_all_modules_and_the_marker_of_types_and_nothing_else(
    wheel: zipfile.ZipFile,
) -> None:
    source = ROOT / "src"
    modules = {path.relative_to(source).as_posix() for path in source.glob("godwit/**/*.py")}
    found = {name for name in wheel.namelist() if not name.startswith(METADATA)}
    assert "godwit/migration/strategies/paced.py" in modules
    assert found == {*modules, "godwit/py.typed", "godwit_command.py"}  # neither the lab nor tests


def test_it_has_the_command(wheel: zipfile.ZipFile) -> None:
    entries = wheel.read(f"{METADATA}/entry_points.txt").decode()
    assert entries.split() == ["[console_scripts]", "godwit", "=", "godwit_command:main"]


def test_it_has_the_license_and_tells_what_it_needs(wheel: zipfile.ZipFile) -> None:
    assert f"{METADATA}/licenses/LICENSE" in wheel.namelist()
    told = wheel.read(f"{METADATA}/METADATA").decode()
    assert "Requires-Dist: pyspark<5,>=4.1" in told
    assert "Requires-Python: >=3.11" in told


def test_each_sink_that_needs_a_package_has_an_extra(wheel: zipfile.ZipFile) -> None:
    told = wheel.read(f"{METADATA}/METADATA").decode()
    extras = {line.split()[1] for line in told.splitlines() if line.startswith("Provides-Extra: ")}
    assert {"delta", "iceberg", "kafka", "postgres"} <= extras


def test_an_import_loads_no_package_of_a_sink_and_none_of_the_large_ones() -> None:
    """Those of sinks may be missing; the large ones take as long as all the rest."""
    packages = {"deltalake", "pyiceberg", "adbc_driver_manager", "psycopg", "confluent_kafka"}
    packages |= {"pandas", "scipy"}  # Arrow loads pandas with the first array that it is given
    program = f"import sys, godwit; print(*{packages} & {{x.split('.')[0] for x in sys.modules}})"
    loaded = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert loaded.stdout.split() == []
