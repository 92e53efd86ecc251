"""Random histories of random graphs come out as in plain Python, in each sink.

A graph has two to six operators, each over sources or some of those before it: aggregates, windows,
sessions, joins with bounds and without, and the first record of each key, over unions and sources
that may be idle; several end in sinks. What happens to it is as in `test_histories`; requests are
for one of its operators or for all. One run plays 72 histories, always the same; `make check`
plays a third, `make soak` 15,000, others each time.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from godwit.model.hashing import hash_rows
from tests.support.counting_workloads import Workload, few_hashes
from tests.support.graph_model import KINDS, Graphs
from tests.support.histories import play
from tests.support.history_events import Story, mixed_stories, steered_stories, stories
from tests.support.history_query import Hasher
from tests.support.random_graphs import RandomGraph, going_on, graphs
from tests.support.searches import is_brief

pytestmark = pytest.mark.soak

HISTORIES = settings().max_examples // 2
Told = tuple[RandomGraph, Story]


StoryOf = Callable[[Workload], st.SearchStrategy[Story]]


def told(story_of: StoryOf) -> st.SearchStrategy[Told]:
    return graphs().flatmap(
        lambda graph: st.tuples(st.just(graph), story_of(graph.workload()).map(going_on))
    )


@pytest.mark.parametrize("hashes", [hash_rows, few_hashes])
@pytest.mark.parametrize("story_of", [stories, mixed_stories, steered_stories])
def test_graphs(story_of: StoryOf, hashes: Hasher) -> None:
    seen = Counter[str]()

    @settings(max_examples=HISTORIES)
    @given(told(story_of))
    def comes_out_right(told: Told) -> None:
        graph, story = told
        workload = graph.workload()
        model = workload.model()
        assert isinstance(model, Graphs)
        found = play(story, replace(workload, model=lambda: model), hashes) + model.count()
        seen.update(found)
        for what in +found:
            event(what)

    comes_out_right()
    if is_brief():
        return
    assert [kind for kind in KINDS if not seen[kind]] == []
    assert seen["duplicates"]
    assert seen["rows without a match"]
    assert seen["records that join a session"]
    if story_of is steered_stories:
        assert seen["requests accepted by several"]  # migrations above all
        assert sum(seen[what] for what in seen if what.startswith("splits"))
        assert sum(seen[what] for what in seen if what.startswith("killed"))
