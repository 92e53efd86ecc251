"""Commands that name no operator are for all of a query; and those that ask for other bins."""

import json
from pathlib import Path

import pytest

from godwit.cli import main
from godwit.cli.patience import Patience
from godwit.cli.watch import Sight, migration_of
from godwit.inspect.overview import Overview
from godwit.log import History
from godwit.migration.strategies import fluid
from godwit.model.requests import parts_of
from godwit.model.routing import Routing, Update
from godwit.operators import AggregateOperator, count
from tests.support.command_line import Running
from tests.support.simulated import COUNTS, WORDS, begin, content, drive, publish

OTHERS = AggregateOperator.of("others", "word", {"rows": count()}, WORDS)
BOTH = ("counts", "others")
BRIEF = Patience(answer=0.05)


@pytest.fixture
def several(tmp_path: Path) -> Running:
    driver = drive(tmp_path, COUNTS, OTHERS, workers=2, bins=16, retention=10_000)
    publish(driver, 0)
    return Running(tmp_path, driver)


def test_bins_are_split_and_merged(query: Running, capsys: pytest.CaptureFixture[str]) -> None:
    assert query.command("apply", "--bins", "64", "--dry-run") == 0
    assert capsys.readouterr().out == "counts: 16 -> 64 bins, none moves\n"
    assert query.command("apply", "--bins", "64") == 0
    assert "request 1 was accepted" in capsys.readouterr().err
    assert query.driver.routing("counts") == Routing.even(64, 2)
    assert query.command("apply", "--bins", "1") == 1
    assert "bins 0 and 32 of 64 would be one" in capsys.readouterr().err
    assert query.command("apply", "--bins", "2", "--json") == 0
    assert json.loads(capsys.readouterr().out)["answer"] == "accepted"
    assert query.command("plan", "--workers", "2", "--rebalance", "--explain") == 0
    assert "bins" in capsys.readouterr().out


def test_a_split_goes_beside_a_migration(
    moving: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    assert moving.command("apply", "--bins", "8192") == 0
    assert moving.command("status") == 0
    assert "migration 1: 2 -> 4 workers, fluid, moving" in capsys.readouterr().out
    assert moving.command("apply", "--workers", "3", "--supersede", "--watch") == 0
    assert moving.driver.routing("counts").bins == 8192


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--bins", "48"], "a power of two from 1 to 2^20, not 48"),
        (["--bins", "32", "--workers", "3"], "--bins moves nothing: migrate before or afterwards"),
        (["--bins", "32", "--watch"], "--watch is about a migration"),
        (["--bins", "32", "--operator", "nobody"], "unknown operator 'nobody'; the query has"),
    ],
)
def test_bad_bins_change_nothing(
    query: Running, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    before = content(query.checkpoint)
    assert query.command("apply", *arguments) == 2
    assert message in capsys.readouterr().err
    assert content(query.checkpoint) == before


@pytest.mark.parametrize("before", [BOTH, BOTH[:1]], ids=["dropped", "added"])
def test_commands_are_for_the_operators_of_the_newest_decision(
    tmp_path: Path, before: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """An epoch is decided with an operator more or less than the newest published one has."""
    known = {"counts": COUNTS, "others": OTHERS}
    publish(drive(tmp_path, *(known[name] for name in before), workers=2, bins=16), 0)
    (tmp_path / "spark" / "commits").mkdir(parents=True)
    (tmp_path / "spark" / "commits" / "0").touch()  # it has reached all sinks
    now = BOTH if len(before) == 1 else BOTH[:1]
    driver = drive(tmp_path, *(known[name] for name in now), drop={*before} - {*now})
    begin(driver, 1)
    for command in (["apply", "--bins", "64"], ["apply", "--workers", "4"]):
        assert main([command[0], str(tmp_path), *command[1:]], BRIEF) == 3
    (split, migrate) = History.inspect(tmp_path).requests.requests()
    assert [[one.operator for one in parts_of(each)] for each in (split, migrate)] == [[*now]] * 2
    assert main(["status", str(tmp_path)], BRIEF) == 0
    told = capsys.readouterr().out
    assert [f"\n{name}: 2 workers" in told for name in BOTH] == [name in now for name in BOTH]


def test_a_command_without_an_operator_is_one_request_for_all(
    several: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    several.driver.requests.split(None, 4096)  # so that no command sees the end of a fluid one
    assert several.command("apply", "--workers", "3", "--strategy", "fluid") == 0
    sight = migration_of(BOTH, 2)(Overview.of(several.checkpoint))
    assert isinstance(sight, Sight)
    assert "'counts' migration 2: 2 -> 3 workers" in sight.text
    assert "'others' migration 2: 2 -> 3 workers" in sight.text
    assert several.command("apply", "--workers", "3", "--supersede", "--watch") == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("migration 3 is done")
    one, other = (several.driver.routing(name) for name in BOTH)
    assert (one == other, one.workers, one.bins) == (True, 3, 4096)
    assert History.inspect(several.checkpoint).requests.ids() == [1, 2, 3]
    assert several.command("apply", "--workers", "3") == 0
    assert "nothing to move" in capsys.readouterr().out
    several.driver.requests.migrate_together(dict.fromkeys(BOTH, Routing.even(4096, 4)))
    several.epoch()
    assert several.command("apply", "--bins", "32") == 0
    assert several.command("apply", "--bins", "64", "--operator", "others") == 0
    assert [several.driver.routing(name).bins for name in BOTH] == [32, 64]
    assert several.command("apply", "--workers", "2", "--watch") == 0
    assert [several.driver.routing(name).workers for name in BOTH] == [2, 2]


def test_what_one_refuses_is_refused_by_all(
    several: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    several.driver.requests.schedule("others", [Update(900, 0, 1)])
    assert several.command("apply", "--workers", "4") == 1
    assert "operator 'others' refuses, so none of 2 operators changes" in capsys.readouterr().err
    assert several.driver.timelines["counts"].migration is None
    assert several.driver.routing("counts").workers == 2


def test_a_migration_of_all_is_aborted_in_one_or_in_all(
    several: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    several.driver.requests.split(None, 4096)
    target = Routing.even(4096, 4)
    several.driver.requests.migrate_together(dict.fromkeys(BOTH, target), strategy=fluid())
    assert several.command("abort", "--operator", "others") == 0
    assert [several.driver.timelines[name].is_open for name in BOTH] == [True, False]
    assert several.command("abort") == 0
    assert [several.driver.timelines[name].is_open for name in BOTH] == [False, False]
    assert several.command("abort") == 2
    assert "no open migration of operators 'counts', 'others'" in capsys.readouterr().err
    # Both take longer than the command, whose epochs may run before it looks.
    targets = dict.fromkeys(BOTH, target)
    several.driver.requests.migrate_together(targets, strategy=fluid(), supersede=True)
    several.driver.requests.migrate("others", target, strategy=fluid(), supersede=True)
    several.epoch()
    assert several.command("abort") == 2
    assert "say --operator counts or --operator others" in capsys.readouterr().err
