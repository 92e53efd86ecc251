"""What tasks tell the keeper beside them, and where they look for files."""

from pathlib import Path

from godwit.model.files import FileRef
from godwit.model.ids import Epoch, ExecutorId, WorkerId
from godwit.placement.slots import Placement
from godwit.worker.chain_events import Written
from godwit.worker.neighbours import Inbox, Neighbours, News, tell_news, tell_written
from godwit.worker.peer_key import PeerKey

A, B, C = map(ExecutorId, "abc")
PLACEMENT = Placement.of(1, [A, B, C], [A, B, C], [[B], [C], []])
WHERE = {A: "a:1", B: "b:1", C: "c:1"}


def test_what_a_task_tells_arrives(tmp_path: Path) -> None:
    """Also where a directory's name is too long for a socket's."""
    directory = tmp_path / ("x" * 100) / ("y" * 100)
    directory.mkdir(parents=True)
    inbox = Inbox(directory)
    near = Neighbours.of(Epoch(7), PLACEMENT, PeerKey.make(), WHERE)
    tell_news(directory, near)
    assert inbox.take() == [News(Epoch(7), WHERE)]
    refs = [FileRef(f"state/{n}", n, n, n) for n in range(500)]
    tell_written(directory, refs, WorkerId(3), (B, C))
    found = [told for _ in range(3) for told in inbox.take()]
    assert found == [Written(ref, WorkerId(3), (B, C)) for ref in refs]


def test_a_keeper_that_is_not_there_hears_nothing_and_holds_nobody_up(tmp_path: Path) -> None:
    near = Neighbours.of(Epoch(7), PLACEMENT, None, {})
    tell_news(tmp_path / "gone", near)
    tell_news(tmp_path, near)
    inbox = Inbox(tmp_path)
    for _ in range(2000):  # more than it has room for
        tell_written(tmp_path, [FileRef("x", 1, 1, 1)], WorkerId(0), (A,))
    assert inbox.take()
    again = Inbox(tmp_path)  # of a keeper that was started in the place of one that was killed
    tell_news(tmp_path, near)
    assert again.take() == [News(Epoch(7), {})]


def test_replicas_are_asked_first_and_then_where_bins_may_come_from() -> None:
    near = Neighbours.of(Epoch(1), PLACEMENT, PeerKey.make(), WHERE)
    assert near.nearest(WorkerId(1), B) == ["c:1", "a:1"]
    assert near.nearest(WorkerId(2), C) == ["a:1", "b:1"]
    assert near.nearest(WorkerId(9), A) == ["b:1", "c:1"]


def test_only_known_addresses_of_executors_that_live_are_asked() -> None:
    near = Neighbours.of(
        Epoch(1), PLACEMENT, PeerKey.make(), {B: "", C: "c:1", ExecutorId("d"): "d:1"}
    )
    assert near.addresses == {C: "c:1"}
    assert Neighbours.of(Epoch(1), PLACEMENT, None, WHERE).addresses == {}
