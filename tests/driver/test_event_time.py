"""Watermarks: of one operator, of a chain, of two inputs, and at the end of a stream."""

from collections.abc import Mapping, Set
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from godwit.driver import event_time
from godwit.driver.event_time import EventTime, Input
from godwit.model.files import FileRef
from godwit.model.graph import Graph, Parents
from godwit.model.time import END, Clocks, latest
from godwit.model.tree import Tree
from godwit.state.timed import timed_spec


def operator(delay: int | None) -> Any:
    return SimpleNamespace(delay=delay)


def watermarks(
    operators: dict[str, Any],
    clocks: Mapping[str, Clocks],
    before: dict[str, int],
    finished: set[str],
    graph: Graph | None = None,
    idle: Set[Input] = frozenset(),
) -> dict[str, int]:
    """Of a chain, whose first operator has as many inputs as it has clocks."""
    first = next(iter(operators))
    chain = graph or Graph.chain(list(operators), len(clocks.get(first, (None,))))
    return event_time.watermarks(operators, chain, clocks, before, finished, idle)


def test_the_clock_less_the_delay() -> None:
    assert watermarks({"a": operator(3)}, {"a": (10,)}, {}, set()) == {"a": 7}


def test_no_watermark_without_event_time_or_before_the_first_record() -> None:
    operators = {"a": operator(None), "b": operator(0)}
    assert watermarks(operators, {"a": (10,), "b": (None,)}, {}, set()) == {}
    assert watermarks(operators, {}, {}, set()) == {}


def test_it_never_goes_back() -> None:
    assert watermarks({"a": operator(5)}, {"a": (10,)}, {"a": 8}, set()) == {"a": 8}


def test_an_operator_starts_from_the_watermark_of_the_one_before_that_has_one() -> None:
    operators = {"a": operator(3), "b": operator(None), "c": operator(2)}
    clocks = {"a": (10,), "c": (1000,)}
    assert watermarks(operators, clocks, {}, set()) == {"a": 7, "c": 5}


def test_of_two_inputs_the_one_behind_counts() -> None:
    assert watermarks({"a": operator(1)}, {"a": (10, 4)}, {}, set()) == {"a": 3}
    assert watermarks({"a": operator(1)}, {"a": (10, None)}, {}, set()) == {}


def test_the_end_reaches_all_operators_behind() -> None:
    operators = {"a": operator(3), "b": operator(2)}
    assert watermarks(operators, {"a": (10,)}, {}, {"a"}) == {"a": END, "b": END}
    assert watermarks(operators, {"a": (12,)}, {"a": END, "b": END}, set()) == {"a": END, "b": END}


def test_of_operators_before_it_the_one_behind_counts() -> None:
    operators = {"a": operator(1), "b": operator(None), "c": operator(4), "d": operator(0)}
    graph = Graph(
        {
            "a": (Parents((), (0,)),),
            "b": (Parents(("a",)),),
            "c": (Parents((), (1,)),),
            "d": (Parents(("b",)), Parents(("c",))),
        }
    )
    clocks: dict[str, Clocks] = {"a": (10,), "c": (12,), "d": (100, 100)}
    assert watermarks(operators, clocks, {}, set(), graph) == {"a": 9, "c": 8, "d": 8}
    del clocks["c"]
    assert watermarks(operators, clocks, {}, set(), graph) == {"a": 9}


def test_what_puts_out_rows_behind_its_watermark_holds_those_behind_it_back() -> None:
    """A join's rows wait for others: the next operator expects them for as long."""
    operators = {"a": SimpleNamespace(delay=0, lag=6), "b": operator(1)}
    assert watermarks(operators, {"a": (10,)}, {}, set()) == {"a": 10, "b": 3}
    assert watermarks(operators, {"a": (10,)}, {}, {"a"}) == {"a": END, "b": END}


def test_where_a_source_comes_in_besides_its_clock_counts_too() -> None:
    operators = {"a": operator(1), "b": operator(0)}
    graph = Graph({"a": (Parents((), (0,)),), "b": (Parents(("a",)), Parents((), (1,)))})
    clocks: dict[str, Clocks] = {"a": (10,), "b": (7, 5)}
    assert watermarks(operators, clocks, {}, set(), graph) == {"a": 9, "b": 5}
    graph = Graph({"a": (Parents((), (0,)),), "b": (Parents(("a",), (1,)),)})
    assert watermarks(operators, {"a": (10,), "b": (7,)}, {}, set(), graph) == {"a": 9, "b": 7}


def test_the_clocks_of_workers_and_epochs() -> None:
    assert latest([(3, None), (5, None), (None, 2)]) == (5, 2)


# -- idle sources ----------------------------------------------------------------------------------


def test_an_idle_input_does_not_count() -> None:
    operators = {"a": operator(1)}
    assert watermarks(operators, {"a": (10, 4)}, {}, set(), idle={("a", 1)}) == {"a": 9}
    assert watermarks(operators, {"a": (10, None)}, {}, set(), idle={("a", 1)}) == {"a": 9}
    assert watermarks(operators, {"a": (None, 4)}, {}, set(), idle={("a", 1)}) == {}


def test_one_that_shows_records_again_holds_the_watermark_where_it_is() -> None:
    assert watermarks({"a": operator(0)}, {"a": (20, 5)}, {"a": 10}, set()) == {"a": 10}
    assert watermarks({"a": operator(0)}, {"a": (20, 11)}, {"a": 10}, set()) == {"a": 11}


def test_if_all_are_idle_the_one_ahead_counts_whichever_fell_silent_last() -> None:
    operators, both = {"a": operator(1)}, {("a", 0), ("a", 1)}
    assert watermarks(operators, {"a": (10, 4)}, {}, set(), idle=both) == {"a": 9}
    assert watermarks(operators, {"a": (4, 10)}, {}, set(), idle=both) == {"a": 9}
    assert watermarks(operators, {"a": (None, 10)}, {}, set(), idle=both) == {"a": 9}
    assert watermarks(operators, {"a": (None, None)}, {}, set(), idle=both) == {}


def test_an_operator_is_idle_if_all_that_comes_in_is() -> None:
    """Of two chains into one operator, the idle one goes with the other."""
    operators = {name: operator(0) for name in "abcd"}
    graph = Graph(
        {
            "a": (Parents((), (0,)),),
            "b": (Parents(("a",)),),
            "c": (Parents((), (1,)), Parents((), (2,))),
            "d": (Parents(("b",)), Parents(("c",))),
        }
    )
    clocks: dict[str, Clocks] = {"a": (5,), "c": (20, 30), "d": (5, 20)}

    def of(*idle: Input) -> dict[str, int]:
        return watermarks(operators, clocks, {}, set(), graph, set(idle))

    assert of() == {"a": 5, "b": 5, "c": 20, "d": 5}
    assert of(("a", 0)) == {"a": 20, "b": 20, "c": 20, "d": 20}
    assert of(("a", 0), ("c", 0)) == {"a": 30, "b": 30, "c": 30, "d": 30}
    assert of(("c", 0), ("c", 1)) == {"a": 5, "b": 5, "c": 30, "d": 5}
    assert of(("a", 0), ("c", 0), ("c", 1)) == {"a": 30, "b": 30, "c": 30, "d": 30}


def test_an_idle_operator_goes_as_far_as_its_rows_need_to_be_on_time_behind_it() -> None:
    """What waits in a join comes out up to its lag later; the delays behind it are time enough."""
    operators = {"a": SimpleNamespace(delay=2, lag=6), "b": operator(3), "c": operator(4)}
    graph = Graph(
        {
            "a": (Parents((), (0,)),),
            "b": (Parents(("a",)),),
            "c": (Parents(("b",)), Parents((), (1,))),
        }
    )
    clocks: dict[str, Clocks] = {"a": (5,), "b": (5,), "c": (5, 100)}
    first = watermarks(operators, clocks, {}, set(), graph, {("a", 0)})
    assert first == {"a": 102, "b": 96, "c": 96}
    assert watermarks(operators, clocks, first, set(), graph, {("a", 0)}) == first
    assert watermarks(operators, clocks, first, set(), graph) == first  # back, and behind
    clocks["a"] = (200,)
    assert watermarks(operators, clocks, first, set(), graph) == {"a": 198, "b": 189, "c": 96}


def test_an_idle_source_alone_goes_nowhere_whichever_way_its_records_take() -> None:
    operators = {
        "a": operator(0),
        "b": SimpleNamespace(delay=0, lag=6),
        "c": SimpleNamespace(delay=0, lag=100),
        "d": operator(0),
    }
    graph = Graph(
        {
            "a": (Parents((), (0,)),),
            "b": (Parents(("a",)),),
            "c": (Parents(("a",)),),
            "d": (Parents(("b",)), Parents(("c",))),
        }
    )
    clocks: dict[str, Clocks] = {"a": (500,)}
    awake = watermarks(operators, clocks, {}, set(), graph)
    assert awake == {"a": 500, "b": 500, "c": 500, "d": 400}
    assert watermarks(operators, clocks, awake, set(), graph, {("a", 0)}) == awake


def test_where_all_are_idle_operators_count_as_far_as_the_source_ahead() -> None:
    operators = {"a": operator(1), "b": operator(2)}
    graph = Graph({"a": (Parents((), (0,)),), "b": (Parents(("a",)), Parents((), (1,)))})
    both = {("a", 0), ("b", 1)}
    clocks: dict[str, Clocks] = {"a": (5,), "b": (5, 100)}
    assert watermarks(operators, clocks, {}, set(), graph, both) == {"a": 99, "b": 97}
    assert watermarks(operators, {"b": (None, 100)}, {}, set(), graph, both) == {"a": 99, "b": 97}
    assert watermarks(operators, {}, {}, set(), graph, both) == {}


SECOND = 1_000_000  # of what sources may be silent, in microseconds
WAITING = timed_spec("waiting", pa.schema({"k": pa.string()}), pa.schema([]))


class Epochs:
    """The epochs of a driver as a list of events: when one begins, and what its inputs show."""

    def __init__(self, graph: Graph, **operators: Any) -> None:
        self.time = EventTime(operators, graph, {}, {})

    def run(self, begun: float, **seen: Clocks) -> dict[str, int]:
        """The watermarks of the next epoch."""
        intent: Any = SimpleNamespace(watermarks=self.time.next())
        self.time = self.time.after(intent, {name: [clock] for name, clock in seen.items()}, begun)
        return self.time.next()


def two(**idle_after: int) -> Epochs:
    """An operator with two inputs, each a source."""
    limits = {"left": 0, "right": 1}
    limit = {limits[name]: seconds * SECOND for name, seconds in idle_after.items()}
    graph = Graph({"a": (Parents((), (0,)), Parents((), (1,)))}, (), ("l", "r"), limit)
    return Epochs(graph, a=SimpleNamespace(delay=0, tables=[WAITING]))


def test_an_input_is_idle_once_an_epoch_has_shown_that_nothing_came_for_so_long() -> None:
    epochs = two(right=60)
    assert epochs.run(0, a=(10, 4)) == {"a": 4}
    assert epochs.run(59, a=(20, None)) == {"a": 4}
    assert epochs.run(60, a=(None, None)) == {"a": 20}
    assert epochs.run(61, a=(30, None)) == {"a": 30}
    assert epochs.run(62, a=(40, 25)) == {"a": 30}  # it is back, and behind
    assert epochs.run(63, a=(50, 35)) == {"a": 35}
    assert epochs.run(122, a=(60, None)) == {"a": 35}
    assert epochs.run(123, a=(60, None)) == {"a": 60}


def test_a_long_epoch_is_not_silence() -> None:
    """What came while it ran is in the next one."""
    epochs = two(right=60)
    epochs.run(0, a=(10, 4))
    assert epochs.run(600, a=(20, 14)) == {"a": 14}


def test_an_input_that_never_showed_a_record_counts_from_the_first_epoch() -> None:
    epochs = two(right=60)
    assert epochs.run(100, a=(10, None)) == {}
    assert epochs.run(160, a=(20, None)) == {"a": 20}


def test_a_source_without_a_limit_is_never_idle() -> None:
    epochs = two(right=60)
    epochs.run(0, a=(4, 10))
    assert epochs.run(1e9, a=(None, None)) == {"a": 4}


def test_after_a_restart_silence_counts_anew_and_the_watermark_stays() -> None:
    epochs = two(right=60)
    epochs.run(0, a=(10, 4))
    epochs.run(60, a=(20, None))
    intent: Any = SimpleNamespace(watermarks=epochs.time.next())
    manifest: Any = SimpleNamespace(clocks=epochs.time.clocks)
    epochs.time = EventTime.of(epochs.time.operators, epochs.time.graph, manifest, intent)
    assert epochs.time.next() == {"a": 20}
    assert epochs.run(1000, a=(30, None)) == {"a": 20}
    assert epochs.run(1060, a=(None, None)) == {"a": 30}


def test_sources_of_one_input_are_idle_together_after_the_longest_of_their_limits() -> None:
    limits = {0: SECOND, 1: 3 * SECOND, 2: SECOND}
    united = Parents((), (0, 1))
    graph = Graph({"a": (united, Parents((), (2,)))}, (), ("x", "y", "z"), limits)
    epochs = Epochs(graph, a=operator(0))
    epochs.run(0, a=(4, 10))
    assert epochs.run(2, a=(None, 10)) == {"a": 4}
    assert epochs.run(3, a=(None, 20)) == {"a": 20}
    unlimited = Graph(graph.inputs, (), graph.sources, {0: SECOND, 2: SECOND})
    epochs = Epochs(unlimited, a=operator(0))
    epochs.run(0, a=(4, 10))
    assert epochs.run(3, a=(None, 20)) == {"a": 4}


def test_sources_count_through_operators_without_event_time() -> None:
    inputs = {"b": (Parents((), (0,)),), "a": (Parents(("b",)), Parents((), (1,)))}
    epochs = Epochs(Graph(inputs, (), ("x", "y"), {0: SECOND}), b=operator(None), a=operator(0))
    epochs.run(0, b=(None,), a=(4, 10))
    assert epochs.run(1, b=(None,), a=(None, 10)) == {"a": 10}


def test_an_epoch_is_due_when_it_would_show_that_a_source_is_idle_while_rows_wait() -> None:
    file = FileRef("waiting", 1, 1, 1)
    tree: Any = SimpleNamespace(files={file.name: file})
    rows, none = {"a": {WAITING.name: tree}}, {"a": {WAITING.name: Tree.empty()}}
    epochs = two(right=60)
    assert not epochs.time.is_due(rows, 1e9)  # before the first epoch
    epochs.run(0, a=(10, 4))
    epochs.run(1, a=(None, None))
    assert not epochs.time.is_due(rows, 59)
    assert epochs.time.awaits_silence(rows)
    assert not epochs.time.awaits_silence(none)
    assert epochs.time.is_due(rows, 60)
    assert not epochs.time.is_due(none, 60)
    assert epochs.run(60, a=(None, None)) == {"a": 10}
    assert epochs.time.is_due(rows, 60)  # the watermark is later, now that nothing came
    epochs.run(61, a=(None, None))
    assert not epochs.time.is_due(rows, 1e9)
    assert not two().time.awaits_silence(rows)
