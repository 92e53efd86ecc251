"""Files in a store without rename: an epoch is there once, by one entry, whoever writes when."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import godwit as gw
from godwit.errors import ConfigError
from godwit.model.schema import parse
from godwit.spark.sinks.delivery_log import DELIVERIES
from godwit.spark.sinks.store_files import StoreFilesSink
from godwit.spark.types import to_spark
from tests.support.arrow_outputs import Row, outputs, started
from tests.support.far_store import FarStore, far_store
from tests.support.log_samples import begun, published

COLUMNS = "k string, n bigint"
SCHEMA = to_spark(parse(COLUMNS))


@pytest.fixture
def store(tmp_path: Path) -> FarStore:
    return far_store(tmp_path / "out")


@pytest.fixture
def start(store: FarStore, tmp_path: Path) -> Callable[[], StoreFilesSink]:
    def start() -> StoreFilesSink:
        sink = started(gw.files(store), COLUMNS, tmp_path)
        assert isinstance(sink, StoreFilesSink)
        return sink

    return start


def rows(store: FarStore) -> list[tuple[int, int]]:
    """Epoch and number of each row that readers see."""
    names = [name.removeprefix("far:/") for name in gw.delivered_files(store)]
    tables = [pq.read_table(name).select(["epoch", "n"]) for name in names]
    found = pa.concat_tables(tables).to_pydict() if tables else {"epoch": [], "n": []}
    return sorted(zip(found["epoch"], found["n"], strict=True))


def take(sink: StoreFilesSink, epoch: int, *values: Row, commit: str | None = None) -> None:
    sink.take(outputs(epoch, COLUMNS, *values), commit or f"q/{epoch}/1")


def test_an_epoch_costs_two_requests(start: Callable[[], StoreFilesSink], store: FarStore) -> None:
    sink = start()
    take(sink, 0, ("a", 0))
    store.requests.clear()
    for epoch in range(1, 20):
        take(sink, epoch, ("a", epoch))
    take(sink, 20)
    assert store.requests == {"write": 19, "create": 19}
    assert rows(store) == [(epoch, epoch) for epoch in range(20)]


def test_an_entry_whose_answer_was_lost_is_known_again(
    start: Callable[[], StoreFilesSink], store: FarStore, tmp_path: Path
) -> None:
    """Whether the store says that there is one, or nothing at all: then the next start asks."""

    def taken(name: str) -> None:
        if name.startswith(DELIVERIES):
            raise FileExistsError

    def silent(name: str) -> None:
        if name.startswith(DELIVERIES):
            raise TimeoutError

    for epoch, lost in enumerate((taken, silent)):
        sink = started(gw.files(replace(store, lost=lost)), COLUMNS, tmp_path)
        assert isinstance(sink, StoreFilesSink)
        if lost is taken:
            take(sink, epoch, ("a", epoch))
        else:
            with pytest.raises(TimeoutError):
                take(sink, epoch, ("a", epoch))
            take(start(), epoch, ("a", epoch))
    assert rows(store) == [(0, 0), (1, 1)]


def test_a_driver_that_was_taken_over_changes_nothing(
    start: Callable[[], StoreFilesSink], store: FarStore
) -> None:
    """Also where the later one has not delivered that epoch: it had no rows the second time."""
    old, new = start(), start()
    take(old, 0, ("a", 0))
    take(new, 0, ("a", 0))
    take(new, 2, ("a", 2), commit="q/2/2")
    with pytest.raises(ConfigError, match=r"has epoch 2 of commit q/2/2, but .* q/1/1"):
        take(old, 1, ("b", 1))
    assert rows(store) == [(0, 0), (2, 2)]


def test_a_later_driver_comes_in_between_files_and_entry(
    start: Callable[[], StoreFilesSink], store: FarStore
) -> None:
    """With the same commit: its files count, and those of the earlier one do not."""
    old, new = start(), start()

    def meanwhile() -> None:
        take(new, 0, ("a", 0))

    old.take(outputs(0, COLUMNS, ("a", 0), meanwhile=meanwhile), "q/0/1")
    assert rows(store) == [(0, 0)]
    assert len(store.list_files("data")) == 2


def test_the_output_of_another_query_is_refused(
    start: Callable[[], StoreFilesSink], store: FarStore, tmp_path: Path
) -> None:
    take(start(), 0, ("a", 0))
    other = tmp_path / "other"
    begun(other / "checkpoint", "other")
    with pytest.raises(ConfigError, match=rf"of another query, in checkpoint {tmp_path}/checkpo"):
        started(gw.files(store), COLUMNS, other)
    with pytest.raises(ConfigError, match="of another query"):
        start().prepare(SCHEMA, tmp_path / "new", to_make=False)


def test_a_restored_query_goes_on_once_later_entries_are_gone(
    start: Callable[[], StoreFilesSink], store: FarStore, tmp_path: Path
) -> None:
    """As the guide to sinks tells."""
    commits = published(tmp_path / "checkpoint", "q", 0, 1, 2)
    sink = start()
    for epoch, commit in enumerate(commits):
        take(sink, epoch, ("a", epoch), commit=commit)
    restored = tmp_path / "restored"
    published(restored / "checkpoint", "q", 0, 1)
    with pytest.raises(ConfigError, match="restored"):
        started(gw.files(store), COLUMNS, restored)
    store.delete(f"{DELIVERIES}/3.json")
    again = started(gw.files(store), COLUMNS, restored)
    again.take(outputs(2, COLUMNS, ("b", 7)), "q/2/2")
    assert rows(store) == [(0, 0), (1, 1), (2, 7)]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"format": "json"}, "are Parquet"),
        ({"header": True}, "no option 'header', only 'compression'"),
        ({"compression": "zip"}, "cannot have the compression 'zip'; use snappy"),
    ],
)
def test_what_only_spark_writes_is_refused(
    store: FarStore, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        gw.files(store, **options)


def test_files_have_the_compression_that_was_asked_for(store: FarStore, tmp_path: Path) -> None:
    started(gw.files(store, compression="zstd"), COLUMNS, tmp_path).take(
        outputs(0, COLUMNS, ("a", 1)), "q/0/1"
    )
    (name,) = gw.delivered_files(store)
    written = pq.read_metadata(name.removeprefix("far:/"))
    assert written.row_group(0).column(0).compression == "ZSTD"


def test_a_checkpoint_and_an_output_lie_beside_each_other(tmp_path: Path) -> None:
    store = far_store(tmp_path)
    sink = gw.files(store.within("q"))
    assert isinstance(sink, StoreFilesSink)
    for other in ("q", "q/checkpoint", ""):
        with pytest.raises(ConfigError, match="one lies in the other"):
            sink.prepare(SCHEMA, store.within(other), to_make=False)
    sink.prepare(SCHEMA, store.within("q2"), to_make=False)
