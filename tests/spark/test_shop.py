"""The program of `make shop`, in a short day and without its PostgreSQL."""

import re
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from examples.shop import __main__ as shop
from tests.support import postgres


@pytest.mark.spark
def test_the_shop_is_exactly_right(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("SHOP_DSN", raising=False)
    monkeypatch.setattr(postgres, "programs", lambda: None)
    monkeypatch.setattr(shop, "session", lambda *_: nullcontext(spark))
    monkeypatch.setattr(shop, "mkdtemp", lambda prefix: str(tmp_path))
    for name, value in {"MINUTES": 13, "SECONDS_A_MINUTE": 0.0, "MOVE_AT": 4}.items():
        monkeypatch.setattr(shop, name, value)
    shop.main()
    told = capsys.readouterr().out
    assert "the shop is open: 5 operators, each with 2 workers" in told
    assert re.search(r"([\d,]+) of \1 bins have moved: done", told)
    for result in ("orders", "visits", "bestsellers"):
        assert re.search(rf"{result}, Delta: [1-9][\d,]* rows, 0 wrong or missing", told)
    assert re.search(r"  orders: [1-9]\d*; dropped by 'paid': [1-9]", told)
    assert "all of it is exactly right: True" in told
