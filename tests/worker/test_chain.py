"""The chain of replicas, event by event: what each means for a file in each of its states."""

from collections.abc import Iterable

import pytest

from godwit.model.files import FileRef
from godwit.model.ids import ExecutorId, WorkerId
from godwit.worker.chain import ReplicaChain
from godwit.worker.chain_events import (
    STORE,
    Ack,
    Back,
    Came,
    ChainOrder,
    Decline,
    Deliver,
    Fetch,
    Heard,
    Lack,
    Lost,
    Message,
    Need,
    Offer,
    Planned,
    Tell,
    Want,
    Written,
)

ME, A, B, C = map(ExecutorId, ("me", "a", "b", "c"))
W = WorkerId(3)
WINDOW = 100


def ref(name: str = "x", size: int = 10) -> FileRef:
    return FileRef(name, 1, size, 7)


X = ref()


@pytest.fixture
def chain() -> ReplicaChain:
    """One that keeps a replica of worker 3."""
    chain = ReplicaChain(ME, WINDOW)
    chain.handle(Planned(frozenset([W]), {}))
    return chain


def offer(*behind: ExecutorId, file: FileRef = X, worker: int = W) -> Offer:
    return Offer(file, WorkerId(worker), behind)


def hear(
    chain: ReplicaChain, peer: ExecutorId, message: Message, *, here: bool = False
) -> list[ChainOrder]:
    return chain.handle(Heard(peer, message, here))


def need(
    chain: ReplicaChain, *sources: ExecutorId, files: Iterable[FileRef] = (X,)
) -> list[ChainOrder]:
    return chain.handle(Planned(frozenset([W]), {f.name: Need(f, sources) for f in files}))


# -- a file that was written here


def test_a_new_file_is_offered_to_the_first_of_its_group(chain: ReplicaChain) -> None:
    assert chain.handle(Written(X, W, (A, B))) == [Tell(A, offer(B))]
    assert chain.awaited == {A}


def test_a_file_without_a_group_is_nobody_elses(chain: ReplicaChain) -> None:
    assert chain.handle(Written(X, W, ())) == []
    assert chain.awaited == set()


def test_who_is_lost_is_passed_over(chain: ReplicaChain) -> None:
    chain.handle(Lost(A))
    assert chain.handle(Written(X, W, (A, B, C))) == [Tell(B, offer(C))]
    chain.handle(Lost(C))
    assert chain.handle(Written(ref("y"), W, (A, C))) == []


def test_what_a_lost_one_has_not_acknowledged_goes_to_the_next(chain: ReplicaChain) -> None:
    chain.handle(Written(X, W, (A, B)))
    assert chain.handle(Lost(A)) == [Tell(B, offer())]
    assert chain.awaited == {B}
    assert chain.handle(Lost(B)) == []
    assert chain.awaited == set()


def test_what_was_acknowledged_is_done_with(chain: ReplicaChain) -> None:
    chain.handle(Written(X, W, (A, B)))
    assert hear(chain, A, Ack("x")) == []
    assert chain.awaited == set()
    assert chain.handle(Lost(A)) == []


def test_what_is_declined_goes_to_the_next(chain: ReplicaChain) -> None:
    chain.handle(Written(X, W, (A, B)))
    assert hear(chain, A, Decline("x")) == [Tell(B, offer())]


def test_answers_of_one_who_was_not_asked_mean_nothing(chain: ReplicaChain) -> None:
    chain.handle(Written(X, W, (A, B)))
    for message in (Ack("x"), Decline("x"), Lack("x"), Ack("y"), Decline("y")):
        assert hear(chain, B, message) == []
    assert chain.awaited == {A}


def test_one_that_is_back_gets_what_is_written_from_then_on(chain: ReplicaChain) -> None:
    chain.handle(Lost(A))
    chain.handle(Written(X, W, (A,)))
    assert chain.handle(Back(A)) == []
    assert chain.handle(Written(ref("y"), W, (A,))) == [Tell(A, offer(file=ref("y")))]


def test_a_wanted_file_is_delivered_and_a_missing_one_is_said_to_be(chain: ReplicaChain) -> None:
    assert hear(chain, A, Want(X), here=True) == [Deliver(A, X)]
    assert hear(chain, A, Want(X)) == [Tell(A, Lack("x"))]


# -- a file that is offered


def test_an_offered_file_is_wanted_handed_on_and_acknowledged(chain: ReplicaChain) -> None:
    assert hear(chain, A, offer(B)) == [Tell(A, Want(X))]
    assert chain.awaited == {A}
    assert chain.handle(Came("x", A, sound=True)) == [Tell(B, offer())]
    assert hear(chain, B, Ack("x")) == [Tell(A, Ack("x"))]
    assert chain.awaited == set()


def test_the_last_of_a_chain_acknowledges_at_once(chain: ReplicaChain) -> None:
    hear(chain, A, offer())
    assert chain.handle(Came("x", A, sound=True)) == [Tell(A, Ack("x"))]


def test_a_file_that_is_here_is_not_wanted_again_but_handed_on(chain: ReplicaChain) -> None:
    assert hear(chain, A, offer(B), here=True) == [Tell(B, offer())]
    assert hear(chain, B, Ack("x")) == [Tell(A, Ack("x"))]
    assert hear(chain, A, offer(), here=True) == [Tell(A, Ack("x"))]


def test_a_file_of_a_worker_that_is_not_kept_is_declined(chain: ReplicaChain) -> None:
    assert hear(chain, A, offer(B, worker=4)) == [Tell(A, Decline("x"))]


def test_a_damaged_file_is_declined_so_that_others_get_it(chain: ReplicaChain) -> None:
    hear(chain, A, offer(B))
    assert chain.handle(Came("x", A, sound=False)) == [Tell(A, Decline("x"))]
    assert chain.awaited == set()


def test_one_that_is_offered_twice_comes_once_and_both_hear_of_it(chain: ReplicaChain) -> None:
    hear(chain, A, offer(C))
    assert hear(chain, B, offer(C)) == []
    assert chain.handle(Came("x", A, sound=True)) == [Tell(C, offer())]
    assert hear(chain, C, Ack("x")) == [Tell(A, Ack("x")), Tell(B, Ack("x"))]


def test_one_that_is_offered_while_it_is_handed_on_is_not_offered_again(
    chain: ReplicaChain,
) -> None:
    hear(chain, A, offer(C))
    chain.handle(Came("x", A, sound=True))
    assert hear(chain, B, offer(C), here=True) == []
    assert hear(chain, C, Ack("x")) == [Tell(A, Ack("x")), Tell(B, Ack("x"))]


def test_without_the_one_who_offered_it_another_who_did_is_asked(chain: ReplicaChain) -> None:
    hear(chain, A, offer())
    hear(chain, B, offer())
    assert chain.handle(Lost(A)) == [Tell(B, Want(X))]
    assert chain.handle(Came("x", A, sound=True)) == []  # such a thing was on the way
    assert chain.handle(Came("x", B, sound=True)) == [Tell(B, Ack("x"))]


def test_an_offered_file_is_given_up_with_the_one_who_offered_it(chain: ReplicaChain) -> None:
    hear(chain, A, offer())
    assert chain.handle(Lost(A)) == []
    assert chain.awaited == set()


def test_who_was_lost_is_not_told_of_what_it_had_offered(chain: ReplicaChain) -> None:
    hear(chain, A, offer(B))
    chain.handle(Came("x", A, sound=True))
    assert chain.handle(Lost(A)) == []
    assert hear(chain, B, Ack("x")) == []


def test_in_the_middle_of_a_chain_a_loss_is_stepped_over(chain: ReplicaChain) -> None:
    hear(chain, A, offer(B, C))
    chain.handle(Came("x", A, sound=True))
    assert chain.handle(Lost(B)) == [Tell(C, offer())]
    assert chain.handle(Lost(C)) == [Tell(A, Ack("x"))]


# -- a file that is needed


def test_a_needed_file_is_asked_for_from_source_to_source(chain: ReplicaChain) -> None:
    assert need(chain, A, B) == [Tell(A, Want(X))]
    assert chain.lacking == {"x"}
    assert hear(chain, A, Lack("x")) == [Tell(B, Want(X))]
    assert chain.handle(Lost(B)) == [Fetch(X)]
    assert chain.awaited == set()
    assert chain.handle(Came("x", STORE, sound=True)) == []
    assert chain.lacking == set()


def test_what_not_even_the_store_has_is_given_up_until_it_is_needed_again(
    chain: ReplicaChain,
) -> None:
    assert need(chain) == [Fetch(X)]
    assert chain.handle(Came("x", STORE, sound=False)) == []
    assert chain.lacking == set()
    assert need(chain) == [Fetch(X)]


def test_nobody_is_asked_who_is_lost_nor_this_one(chain: ReplicaChain) -> None:
    chain.handle(Lost(A))
    assert need(chain, ME, A, B, B) == [Tell(B, Want(X))]


def test_a_needed_file_that_is_offered_is_on_its_way(chain: ReplicaChain) -> None:
    need(chain, A)
    assert hear(chain, A, offer()) == []
    assert chain.handle(Came("x", A, sound=True)) == [Tell(A, Ack("x"))]


def test_an_offered_file_that_is_needed_is_on_its_way(chain: ReplicaChain) -> None:
    hear(chain, A, offer())
    assert need(chain, A) == []
    assert chain.handle(Lost(A)) == [Fetch(X)]


def test_who_offers_a_file_that_waits_is_asked_for_it(chain: ReplicaChain) -> None:
    y = ref("y", WINDOW)
    assert need(chain, files=[y, X]) == [Fetch(y)]
    assert hear(chain, A, offer()) == [Tell(A, Want(X))]


def test_what_is_needed_no_longer_is_not_asked_for(chain: ReplicaChain) -> None:
    y = ref("y", WINDOW)
    need(chain, A, files=[y, X])
    assert chain.lacking == {"x", "y"}
    need(chain, files=[])
    assert chain.lacking == set()
    assert chain.handle(Came("y", A, sound=True)) == []
    assert chain.awaited == set()


def test_what_is_needed_no_longer_comes_from_no_further_source(chain: ReplicaChain) -> None:
    need(chain, A)
    need(chain, files=[])
    assert hear(chain, A, Lack("x")) == []
    assert chain.awaited == set()


def test_a_plan_that_is_told_again_changes_nothing(chain: ReplicaChain) -> None:
    need(chain, A, B)
    assert need(chain, A, B) == []
    assert hear(chain, A, Lack("x")) == [Tell(B, Want(X))]
    assert need(chain, B) == []
    assert chain.handle(Lost(B)) == [Fetch(X)]
    assert need(chain, C) == []
    assert chain.handle(Came("x", STORE, sound=False)) == [Tell(C, Want(X))]


# -- credit


def test_no_more_is_wanted_of_a_source_than_fits_its_window(chain: ReplicaChain) -> None:
    files = [ref(str(number), 40) for number in range(4)]
    assert need(chain, A, files=files) == [Tell(A, Want(files[0])), Tell(A, Want(files[1]))]
    assert chain.handle(Came("0", A, sound=True)) == [Tell(A, Want(files[2]))]
    assert hear(chain, A, Lack("1")) == [Tell(A, Want(files[3])), Fetch(files[1])]


def test_a_larger_file_comes_alone_and_in_its_turn(chain: ReplicaChain) -> None:
    small, large, last = ref("small"), ref("large", 5 * WINDOW), ref("last")
    assert need(chain, A, files=[small, large, last]) == [Tell(A, Want(small))]
    assert chain.handle(Came("small", A, sound=True)) == [Tell(A, Want(large))]
    assert chain.handle(Came("large", A, sound=True)) == [Tell(A, Want(last))]


def test_one_that_does_not_answer_holds_up_no_other(chain: ReplicaChain) -> None:
    need(chain, A, files=[ref("large", WINDOW), X])
    assert hear(chain, B, offer(file=ref("y"))) == [Tell(B, Want(ref("y")))]
    chain.handle(Written(ref("z"), W, (A,)))
    assert chain.handle(Written(ref("u"), W, (B,))) == [Tell(B, offer(file=ref("u")))]
    assert chain.awaited == {A, B}


def test_a_lost_one_gives_its_window_back(chain: ReplicaChain) -> None:
    large = ref("large", WINDOW)
    need(chain, A, files=[large, X])
    assert chain.handle(Lost(A)) == [Fetch(large)]
    chain.handle(Back(A))
    assert need(chain, A, files=[large, X]) == [Tell(A, Want(X))]
