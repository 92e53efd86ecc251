"""Slots are made anew only when workers cannot be had where they are placed."""

import pytest
from pyspark.sql import DataFrame, SparkSession

from godwit.model.placement import Placement
from godwit.spark.slots import Slots, assign

PLACES = ["0", "1", "2", "0", "1", "2"]


@pytest.fixture(scope="module")
def anchor(spark: SparkSession) -> DataFrame:
    return spark.range(1).cache()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("homes", "executors", "fit"),
    [
        ("0120", "012", True),
        ("1221", "12", True),  # executor 0 is lost: its slots are left alone
        ("1211", "12", False),  # executor 1 has two slots
        ("2", "2", False),  # most slots are of lost executors
        ("1233", "123", False),  # another one has come
    ],
)
def test_slots_fit(anchor: DataFrame, homes: str, executors: str, fit: bool) -> None:
    slots = Slots(anchor, range(6), PLACES, ["0", "1", "2"])
    assert slots.fit(Placement.of(1, executors, homes, [])) is fit
    if fit:
        assert [PLACES[slot] for slot in assign(PLACES, homes)] == list(homes)
