"""A worker over an object store: what it asks for is counted, and nothing secret gets out."""

import logging
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from godwit.model.ids import WorkerId
from godwit.model.manifest import WorkerStatistics
from godwit.model.receipt import Receipt
from godwit.model.store_requests import StoreRequests
from godwit.state import cache
from godwit.worker.work import Work
from tests.support.object_gateway import KEY, SECRET, Gateway, gateway
from tests.support.simulated import begin, drive, simulate, words

KEYS = [f"word {i}" for i in range(100)]


@pytest.fixture
def objects() -> Iterator[Gateway]:
    with gateway() as made:
        yield made


def run(work: Work) -> Receipt:
    records = work.operator.input.empty_table().from_pylist(words(*KEYS), work.operator.input)
    return work.run(WorkerId(0), records.to_batches())


def first(home: Path, objects: Gateway) -> Work:
    """The work of a first epoch, whose files go to the object store."""
    driver = drive(home, workers=1)
    return replace(driver.work(begin(driver, 0), "counts"), store=objects.s3())


def test_a_receipt_says_how_many_requests_there_were(tmp_path: Path, objects: Gateway) -> None:
    receipt = run(first(tmp_path, objects))
    assert receipt.failure is None
    ((delta,),) = receipt.deltas.values()
    assert receipt.outputs is not None
    assert {*objects.objects} == {f"query/{delta.ref.name}", f"query/{receipt.outputs.name}"}
    assert receipt.store_requests == StoreRequests(puts=2)
    again = Receipt.from_text(receipt.to_text())
    assert again.statistics().store_requests == StoreRequests(puts=2)
    kept = again.statistics().to_json()
    assert WorkerStatistics.from_json(kept) == again.statistics()


def test_a_manifest_says_nothing_of_requests_where_there_were_none() -> None:
    kept = Receipt(WorkerId(0)).statistics().to_json()
    assert "store_requests" not in kept
    assert WorkerStatistics.from_json(kept).store_requests == StoreRequests()


def test_state_is_read_once_by_the_executor_that_has_none_of_it(
    tmp_path: Path, objects: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim = simulate(tmp_path, workers=1)
    sim.feed(words(*KEYS))
    driver = drive(tmp_path)
    local = driver.work(begin(driver, 1), "counts")
    for tree in local.trees.values():
        for name in tree.files:
            objects.objects[f"query/{name}"] = driver.files.read(name)
    files = len(objects.objects)
    work = replace(local, store=objects.s3())
    assert run(work).store_requests == StoreRequests(puts=2, gets=files)
    assert run(work).store_requests == StoreRequests(puts=2)
    monkeypatch.setattr(cache, "_opened", cache._Opened())
    shutil.rmtree(work.cache.path)
    assert run(work).store_requests == StoreRequests(puts=2, gets=files)


def test_no_credential_is_in_what_a_worker_says_or_leaves(
    tmp_path: Path, objects: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    work = first(tmp_path, objects)
    receipt = run(work)
    objects.acts = [403]
    with pytest.raises(OSError, match="access is denied") as refused:
        run(work)
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    said = [receipt.to_text(), repr(work), repr(receipt), str(refused.value), caplog.text]
    for text in [*files, *objects.objects.values(), *(one.encode() for one in said)]:
        assert KEY.encode() not in text
        assert SECRET.encode() not in text
