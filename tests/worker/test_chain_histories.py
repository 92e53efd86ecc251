"""Random histories of a few keepers: what is promised at each moment, and what comes in the end."""

import random

from hypothesis import given
from hypothesis import strategies as st

from godwit.model.ids import ExecutorId, WorkerId
from tests.support.chain_network import WINDOW, Network

NAMES = [*map(ExecutorId, "abcd")]
WORKERS = [*map(WorkerId, range(3))]
SIZES = [1, 10, 40, 60, WINDOW, 3 * WINDOW]


def place(network: Network, choose: random.Random) -> None:
    """Give workers homes and replica groups."""
    for worker in WORKERS:
        home, *others = choose.sample(NAMES, len(NAMES))
        network.homes[worker] = home
        network.groups[worker] = tuple(others[: choose.randint(0, 3)])


def step(network: Network, choose: random.Random) -> None:
    """Let something happen; most often, a message arrives."""
    one, other = choose.sample(NAMES, 2)
    busy = [pair for pair, line in network.lines.items() if line]
    if busy and choose.random() < 0.6:
        network.deliver(*choose.choice(busy))
        return
    match choose.randint(0, 9):
        case 0 | 1 | 2:
            network.write(choose.choice(WORKERS), choose.choice(SIZES))
        case 3 | 4:
            network.plan(one, network.files)
        case 5 if network.reads:
            network.read(sound=choose.random() < 0.7)
        case 6:
            network.part(one, other)
        case 7:
            network.join(one, other)
        case 8 if choose.random() < 0.3:
            network.restart(one, keeps=choose.random() < 0.5)
        case 9 if choose.random() < 0.3:
            place(network, choose)


@given(st.integers(0, 1 << 32))
def test_whatever_is_lost_on_the_way_all_come_to_have_what_they_need(seed: int) -> None:
    choose = random.Random(seed)
    network = Network(NAMES, choose)
    place(network, choose)
    for _ in range(choose.randint(1, 300)):
        step(network, choose)
    for number, one in enumerate(NAMES):
        for other in NAMES[:number]:
            network.join(one, other)
    network.settle()
    for name in NAMES:
        network.plan(name, network.files)
    network.settle()
    for node in network.nodes.values():
        needed = {
            ref.name
            for ref, worker in network.files.values()
            if node.name in network.groups[worker]
        }
        assert node.cache >= needed
        assert node.chain.lacking == set()
        assert node.chain.awaited == set()
        assert node.asked == {}


@given(st.integers(0, 1 << 32))
def test_where_nothing_is_lost_each_file_goes_once_to_each(seed: int) -> None:
    """However messages and plans interleave, and whoever hears first of an epoch."""
    choose = random.Random(seed)
    network = Network(NAMES, choose)
    place(network, choose)
    network.choose = random.Random(0)
    network.choose.random = lambda: 0.0  # type: ignore[method-assign]  # nothing is damaged
    for name in NAMES:
        network.plan(name, {})
    for _ in range(choose.randint(1, 200)):
        busy = [pair for pair, line in network.lines.items() if line]
        if busy and choose.random() < 0.7:
            network.deliver(*choose.choice(busy))
        elif choose.random() < 0.8:
            network.write(choose.choice(WORKERS), choose.choice(SIZES))
        else:
            network.plan(choose.choice(NAMES), network.files)
    network.settle()
    assert network.reads == []
    for ref, worker in network.files.values():
        assert network.sent[ref.name] == len(network.groups[worker])
        assert all(ref.name in network.nodes[name].cache for name in network.groups[worker])
