"""What users install: the library, its types and its command, and nothing else of this checkout."""

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
