"""Random histories of random graphs come out as in plain Python, in state and in each sink.

A graph has two to six operators, each over the source or some of those before it; several end in
sinks. What happens to it is as in `test_histories`; requests are for one of its operators or for
all. One run plays 72 histories, always the same; `make soak` plays 15,000, others each time.
"""

from collections.abc import Callable

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from godwit.model.hashing import hash_rows
from tests.support.counting_workloads import Workload, few_hashes
from tests.support.graph_workloads import graphs
from tests.support.histories import Hasher, play
from tests.support.history_events import Story, mixed_stories, steered_stories, stories

pytestmark = pytest.mark.soak

HISTORIES = settings().max_examples // 2
Told = tuple[Workload, Story]


StoryOf = Callable[[Workload], st.SearchStrategy[Story]]


def told(story_of: StoryOf) -> st.SearchStrategy[Told]:
    return graphs().flatmap(lambda workload: st.tuples(st.just(workload), story_of(workload)))


@pytest.mark.parametrize("hashes", [hash_rows, few_hashes])
@pytest.mark.parametrize("story_of", [stories, mixed_stories, steered_stories])
def test_graphs(story_of: StoryOf, hashes: Hasher) -> None:
    @settings(max_examples=HISTORIES)
    @given(told(story_of))
    def comes_out_right(told: Told) -> None:
        workload, story = told
        for what in +play(story, workload, hashes):
            event(what)

    comes_out_right()
