"""The log of deliveries: one driver is first, and a reader finds all files by few entries."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.errors import DamagedFileError
from godwit.model.files import FileRef
from godwit.model.ids import Epoch
from godwit.spark.sinks.delivery_log import DELIVERIES, Delivery, DeliveryLog
from godwit.storage.local import scratch
from tests.support.far_store import FarStore, far_store


def delivery(epoch: int, query: str = "q", generation: int = 1) -> Delivery:
    """Of an epoch that has a file of its number."""
    file = FileRef(str(epoch), 1, 1, 1)
    return Delivery(Epoch(epoch), f"{query}/{epoch}/{generation}", "checkpoint", {}, (file,))


def epochs(log: DeliveryLog) -> list[int]:
    """What a reader finds in a log."""
    newest = log.newest()
    return sorted(int(ref.name) for ref in DeliveryLog(log.store).files(newest))


@pytest.fixture
def store(tmp_path: Path) -> FarStore:
    return far_store(tmp_path)


@given(count=st.integers(0, 280), starts=st.sets(st.integers(0, 280), max_size=4))
def test_a_reader_finds_each_file_once_by_few_entries(count: int, starts: set[int]) -> None:
    """However often the query was started meanwhile."""
    with scratch() as near:
        store = FarStore(near)
        log, newest = DeliveryLog(store), None
        for epoch in range(count):
            if epoch in starts:
                log = DeliveryLog(store)
                newest = log.newest()
            newest = log.append(newest, delivery(epoch))
        store.requests.clear()
        assert epochs(DeliveryLog(store)) == [*range(count)]
        assert store.requests["read"] <= 1 + 15 * 2 + count // 256


def test_a_driver_that_goes_on_lists_and_reads_nothing(store: FarStore) -> None:
    log, newest = DeliveryLog(store), None
    for epoch in range(300):
        newest = log.append(newest, delivery(epoch))
    assert store.requests == {"create": 300}


def test_of_two_drivers_that_have_seen_the_same_one_is_first(store: FarStore) -> None:
    one, other = DeliveryLog(store), DeliveryLog(store)
    seen = one.append(None, delivery(0))
    assert other.newest() == seen
    two = other.append(seen, delivery(1, generation=2))
    with pytest.raises(FileExistsError):
        one.append(seen, delivery(1))
    assert one.newest() == two
    assert epochs(one) == [0, 1]


def test_a_driver_that_slept_long_adds_nothing(store: FarStore) -> None:
    """Nothing that it may want to create has been deleted meanwhile, also where entries have the
    files of others."""
    old, new = DeliveryLog(store), DeliveryLog(store)
    seen = newest = old.append(None, delivery(0))
    for epoch in range(1, 40):
        newest = new.append(newest, delivery(epoch, generation=2))
    with pytest.raises(FileExistsError):
        old.append(seen, delivery(1))
    assert epochs(old) == [*range(40)]


def test_what_people_take_back_is_gone_for_readers(store: FarStore) -> None:
    """The newest entries, as after a restore; the next delivery takes the first free number."""
    log, newest = DeliveryLog(store), None
    for epoch in range(20):
        newest = log.append(newest, delivery(epoch))
    for number in range(14, 21):
        store.delete(f"{DELIVERIES}/{number}.json")
    again = DeliveryLog(store)
    assert epochs(again) == [*range(13)]
    newest = again.newest()
    for epoch in range(30, 34):
        newest = again.append(newest, delivery(epoch, generation=2))
    assert epochs(again) == [*range(13), *range(30, 34)]


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b"{}", b'{"files": 1}'])
def test_a_damaged_entry_is_an_error_that_names_it(
    store: FarStore, tmp_path: Path, content: bytes | None
) -> None:
    log = DeliveryLog(store)
    log.append(log.append(None, delivery(0)), delivery(1))
    first = tmp_path / DELIVERIES / "1.json"
    first.unlink()
    if content is not None:
        first.write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"1\.json.*restore the output from a backup"):
        epochs(log)


def test_an_entry_is_read_as_it_was_written() -> None:
    told = replace(delivery(3), number=32, since=17, schema={"type": "struct", "fields": []})
    assert Delivery.from_json(told.to_json()) == told
