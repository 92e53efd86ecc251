"""Random graphs with real sinks come out as in plain Python, whatever is killed, and when.

A story has a graph of two to six operators over one or two sources, and two or more sinks: files,
Delta and PostgreSQL tables (of all rows, or of the newest of each key), Iceberg tables; one may get
late records. In half of the stories tasks write the files of tables; in some, sources may be idle.
A story has batches of input; migrations, splits and merges of bins, of single operators and of all;
restarts with other workers and bins; and kills: of the application before or after any point of an
epoch, between two of its sinks, where a sink has written rows and has yet to commit them, or some
time after a point; and of processes of tasks. In the end each row of each sink and of each state is
compared with a model that knows nothing of all this.

Some stories are always the same. `make soak` plays random ones; as many in a row as there are
points kill first at each of them. To play others, name their seeds in `GODWIT_STORIES`.
"""

import os
import secrets

import pytest
from hypothesis import settings

from tests.support.kills.graph import SINKS
from tests.support.kills.graph_playing import BY_TASKS, Played, Stage, play
from tests.support.kills.story import MATRIX, Story

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

# Seeds, and what is seen in their stories.
SAME = {
    254: {"after rows", "a move of all", BY_TASKS},
    951: {"after rows", "a move of all", BY_TASKS},  # rows of an Iceberg table, its first sink
    456: {"before delivery of 3", "a move of all", "a split of all", BY_TASKS},
}
RANDOM = 0 if settings().derandomize else 3 * len(MATRIX)  # `make soak` plays them
AGAIN = [int(seed) for seed in os.environ.get("GODWIT_STORIES", "").split()]


def comes_out_right(seed: int, stage: Stage) -> Played:
    """Play a story; if it fails, tell how to play it again."""
    try:
        played = play(Story.of(seed), stage)
    except BaseException:
        print(
            f"again: GODWIT_STORIES={seed} .venv/bin/pytest "
            "tests/spark/kills/test_graph_stories.py -k again"
        )
        raise
    print(played)
    return played


@pytest.mark.parametrize("seed", SAME)
def test_a_story(stage: Stage, seed: int) -> None:
    """Among them: a move of all operators in one, bins that split while the query runs, and a death
    between files that tasks have written and the commit that names them."""
    assert SAME[seed] <= comes_out_right(seed, stage).seen


def test_stories_kill_at_each_point_and_write_to_each_sink() -> None:
    stories = [Story.of(seed) for seed in range(len(MATRIX))]
    kills = [story.lives[0].kill for story in stories]
    assert {(kill.point, kill.side) for kill in kills if kill} == set(MATRIX)
    sinks = {end.kind for seed in SAME for end in Story.of(seed).graph.ends}
    assert sinks == set(SINKS)


@pytest.mark.parametrize("seed", AGAIN)
def test_a_story_again(stage: Stage, seed: int) -> None:
    comes_out_right(seed, stage)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(RANDOM))
def test_a_random_story(stage: Stage, number: int) -> None:
    comes_out_right(secrets.randbelow(1 << 32) * len(MATRIX) + number % len(MATRIX), stage)
