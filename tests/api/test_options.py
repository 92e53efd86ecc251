"""Options that do not exist, and those that do."""

from pathlib import Path
from typing import Any

import pytest

import godwit as gw

JOB = gw.stream("word string").aggregate("counts", key="word", n=gw.count()).to(gw.console())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("retenton", "there is no option 'retenton'; did you mean 'retention'?"),
        ("fetchrate", "there is no option 'fetchrate'; did you mean 'fetch_rate'?"),
        ("colour", "there is no option 'colour'; there are bins, retention, replicas, cache_bytes"),
    ],
)
def test_a_wrong_option_is_answered_with_the_near_one(given: str, message: str) -> None:
    options: dict[str, Any] = {given: 1}
    with pytest.raises(gw.ConfigError, match=f"^{message.replace('?', '[?]')}"):
        gw.Options(**options)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("worker", "start has no option 'worker'; did you mean 'workers'?"),
        ("bins", "start has no option 'bins'; did you mean options=gw.Options(bins=...)?"),
        ("retenton", "did you mean options=gw.Options(retention=...)?"),
        ("colour", "start has no option 'colour'; it has checkpoint, workers, trigger, options, "),
    ],
)
def test_so_is_a_wrong_option_of_start(given: str, message: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {given: 1}
    with pytest.raises(gw.ConfigError) as refused:
        JOB.start(tmp_path / "checkpoint", **options)
    assert message in str(refused.value)
    assert not (tmp_path / "checkpoint").exists()


def test_options_are_values() -> None:
    assert gw.Options(bins=16) == gw.Options(bins=16) != gw.Options()
    assert repr(gw.Options(bins=16)).startswith("Options(bins=16, retention=20")
    assert gw.available_now() == gw.AvailableNow()
    with pytest.raises(AttributeError):
        gw.Options().bins = 3  # type: ignore[misc]
