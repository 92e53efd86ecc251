"""Random histories on the in-memory runtime come out as in plain Python, in state and in the sink.

A history is inputs x routings of each operator over epochs (migrations with deadlines or without,
schedules, updates that come as data, bins that split and merge, requests that must be refused) x
the end of the stream x
deaths (at every fault point, and at every change of a name in the filesystem) x restarts with other
workers and bins x rollbacks, with short retentions and early merges among them. At its end, all
retained epochs are read and compared, the audit finds nothing, and no file is there that nothing
names; and every migration that was accepted has ended. One run plays 8 histories, always the same,
for each operator and two hash functions, of which one lets many keys collide and most share a
segment; and 4 that begin with segments which workers share, and merge in parts. `make check` plays
a quarter, `make soak` 208 times as many, others each time. (--hypothesis-show-statistics says what
happened in them.)
"""

from collections import Counter

import pytest
from hypothesis import event, given, settings

from godwit.model.hashing import hash_rows
from tests.support.column_workloads import APART, BALANCES, FADING_BALANCES, ONCE
from tests.support.counting_workloads import COLLECT, ENDS, TALLY, TOTALS, Workload, few_hashes
from tests.support.expiring_workloads import FADING, FORGETFUL
from tests.support.histories import play
from tests.support.history_events import Story, mixed_stories, steered_stories, stories
from tests.support.history_query import Hasher
from tests.support.join_workloads import JOINED, JOINED_ANTI, JOINED_FULL, JOINED_SEMI
from tests.support.late_workloads import (
    ALARMS_LATE,
    FADING_LATE,
    JOINED_IDLE,
    JOINED_SEMI_LATE,
    PAIRS_IDLE,
    PAIRS_LATE,
    VISITS_LATE,
    WINDOWS_LATE,
)
from tests.support.merged_windows import PANES, VISITS
from tests.support.searches import is_brief
from tests.support.timed_workloads import ALARMS, IN_ORDER, PAIRS, PAIRS_IN_ORDER
from tests.support.window_workloads import (
    APPLIED,
    CHAINED,
    COUNTS,
    SESSIONS,
    SLIDING,
    WINDOWS,
)

pytestmark = pytest.mark.soak

HISTORIES = settings().max_examples // 3
WORKLOADS = (
    *(TOTALS, ENDS, TALLY, COLLECT),
    *(ALARMS, IN_ORDER, PAIRS, PAIRS_IN_ORDER),
    *(WINDOWS, SLIDING, PANES, VISITS, APPLIED, SESSIONS, COUNTS, CHAINED),
    *(FADING, FORGETFUL),
    *(ONCE, APART, BALANCES, FADING_BALANCES),
    *(JOINED, JOINED_FULL, JOINED_SEMI, JOINED_ANTI),
    *(ALARMS_LATE, PAIRS_LATE, WINDOWS_LATE, VISITS_LATE, FADING_LATE, JOINED_SEMI_LATE),
    *(PAIRS_IDLE, JOINED_IDLE),
)


@pytest.mark.parametrize("hashes", [hash_rows, few_hashes])
@pytest.mark.parametrize("workload", WORKLOADS, ids=repr)
def test_histories(workload: Workload, hashes: Hasher) -> None:
    @settings(max_examples=HISTORIES)
    @given(stories(workload))
    def comes_out_right(story: Story) -> None:
        for what in +play(story, workload, hashes):
            event(what)

    comes_out_right()


@pytest.mark.parametrize("workload", [TOTALS, PAIRS, CHAINED, JOINED], ids=repr)
def test_histories_of_steered_queries(workload: Workload) -> None:
    seen = Counter[str]()

    @settings(max_examples=HISTORIES)
    @given(steered_stories(workload))
    def comes_out_right(story: Story) -> None:
        seen.update(play(story, workload, few_hashes))

    comes_out_right()
    assert seen["splits, migration open"] or is_brief()


@pytest.mark.parametrize("workload", WORKLOADS, ids=repr)
def test_histories_of_mixed_bins(workload: Workload) -> None:
    seen = Counter[str]()

    @settings(max_examples=HISTORIES // 2)
    @given(mixed_stories(workload))
    def comes_out_right(story: Story) -> None:
        seen.update(play(story, workload, few_hashes))

    comes_out_right()
    # The stories begin with the same records again and again, and duplicates change nothing.
    assert seen["merged parts of segments"] or workload in (ONCE, APART) or is_brief()
