"""What a start leaves behind when it fails; Spark is not asked."""

from pathlib import Path
from unittest.mock import MagicMock

import pytest

from godwit.log.history import History
from godwit.model.options import Options
from godwit.spark import start as starting
from godwit.spark.unread_files import FileSource
from tests.support.simulated import COUNTS


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_a_start_that_fails_after_it_took_the_checkpoint_says_that_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: type[BaseException]
) -> None:
    """Otherwise it would count as a query that runs, as long as the program goes on."""
    monkeypatch.setattr(FileSource, "all", lambda rows: ())
    for name in ("check_partials", "check_start", "_local_directory"):
        monkeypatch.setattr(starting, name, lambda *_: None)
    monkeypatch.setattr(starting, "check", lambda *_: 0)
    monkeypatch.setattr(starting, "_launch", MagicMock(side_effect=failure("no such table")))
    source = MagicMock()
    source.sparkSession.sparkContext.defaultParallelism = 2
    with pytest.raises(failure, match="no such table"):
        starting.start(
            source,
            [COUNTS],
            MagicMock(),
            MagicMock(),
            tmp_path,
            trigger=None,
            workers=2,
            options=Options(),
            initial=None,
            after=None,
            listener=None,
            control=None,
        )
    (driver,) = History.inspect(tmp_path).generations()
    assert driver.ended
    assert driver.gone
