"""Commands on a query that runs elsewhere: here a driver whose epochs the test runs."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import godwit.operators as ops
from godwit.cli import main, plan
from godwit.errors import ConfigError
from godwit.inspect.overview import Overview
from godwit.log.spark_log import NO_SPARK
from godwit.model.hashing import hash_rows
from godwit.model.ids import Epoch
from godwit.model.routing import Routing
from godwit.operators import AggregateOperator, StateMachine
from tests.support.command_line import Running
from tests.support.operator_simulation import OperatorSimulation
from tests.support.simulated import content, simulate, words
from tests.support.timed_workloads import at
from tests.support.window_workloads import WINDOWS


def test_status(query: Running, capsys: pytest.CaptureFixture[str]) -> None:
    assert query.command("status") == 0
    text = capsys.readouterr().out
    assert "epoch 0, backlog not told by the sources\ndriver 1: process" in text
    assert "counts: 2 workers, 16 bins, 3 row versions, " in text
    assert query.command("status", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    driver, data = told["driver"], told["operators"]["counts"]
    assert (data["records"], data["row_versions"], data["routing"]["bins"]) == (4, 3, 16)
    assert not driver["gone"]
    assert [worker["bins"] for worker in data["workers"]] == [8, 8]
    assert sum(worker["records"] for worker in data["workers"]) == 4


def test_status_counts_row_versions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One key, changed twice: its older version stays in a file until a merge."""
    sim = simulate(tmp_path, workers=1, bins=4)
    sim.feed(words("a"))
    sim.feed(words("a"))
    assert main(["status", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "counts: 1 worker, 4 bins, 2 row versions, " in told
    assert re.search(r"worker +bins +row versions +state", told)
    assert len(sim.state()) == 1


def test_a_better_balance_is_planned_and_applied(
    query: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert query.command("plan", "--drain", "1", "--explain") == 0
    text = capsys.readouterr().out
    assert "counts: the same workers, 8 of 16 bins move" in text
    assert "1 ends without bins" in text
    assert re.search(r"0 +8 +16 +\d+\.\d % +100\.0 %", text)
    before = query.driver.routing("counts")
    assert query.command("apply", "--drain", "1", "--dry-run") == 0
    assert "8 of 16 bins move" in capsys.readouterr().out
    assert query.driver.routing("counts").owners.tolist() == before.owners.tolist()
    assert query.command("apply", "--drain", "1", "--strategy", "all-at-once", "--watch") == 0
    assert query.driver.routing("counts").owners.tolist() == [0] * 16
    assert query.command("plan") == 2
    assert "--workers N, --rebalance or --drain WORKER" in capsys.readouterr().err
    assert query.command("apply", "--workers", "3", "--tau", "0.01") == 2
    assert "heaviest bin" in capsys.readouterr().err


def test_the_load_is_balanced_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Worker 0 has 31 of 32 records, each in a bin of its own; later a third worker is drained."""
    rows = words(*map(str, range(400)))
    sim = simulate(tmp_path, workers=2, bins=256, retention=100)
    hashes = hash_rows(pa.Table.from_pylist(rows).select(["word"]))
    bins, first = np.unique(sim.driver.routing("counts").bins_at(hashes), return_index=True)
    chosen = [*range(31), len(bins) - 1]
    sim.feed([rows[first[place]] for place in chosen])
    query = Running(tmp_path, sim.driver)

    def records() -> list[int]:
        owners = query.driver.routing("counts").owners[bins[chosen]]
        return [int((owners == worker).sum()) for worker in range(2)]

    assert records() == [31, 1]
    now = ["--strategy", "all-at-once", "--watch"]
    assert query.command("apply", "--rebalance", "--tau", "0", "--dry-run") == 0
    assert "counts: the same workers, 15 of 256 bins move" in capsys.readouterr().out
    assert query.command("apply", "--rebalance", "--tau", "0", *now) == 0
    assert records() == [16, 16]
    assert query.command("apply", "--workers", "3", *now) == 0
    assert query.command("apply", "--drain", "2", *now) == 0
    for planner in ("even", "hash", "scattered"):
        assert query.command("apply", "--rebalance", "--planner", planner, *now) == 0
        assert len(query.driver.routing("counts").bins_of(2)) == 0


def test_the_longest_epoch_is_told_if_reading_was_measured(
    query: Running, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert query.command("plan", "--workers", "8", "--explain") == 0
    told = capsys.readouterr().out
    assert "longer by" not in told
    assert "paced:20%: no retained epoch has fetched, so how long that takes is not known" in told
    monkeypatch.setattr(plan, "fetch_rate", lambda history, operator: 100.0)
    assert query.command("plan", "--workers", "8", "--explain") == 0
    told = capsys.readouterr().out
    found = re.findall(r"at most (\d+) B in one, which makes it longer by about (.+) s", told)
    at_once, batch, match = (int(bytes) for bytes, _ in found)
    assert max(batch, match) <= at_once
    for bytes, seconds in found:
        assert float(seconds) == pytest.approx(int(bytes) / 100, abs=0.06)
    assert "(100 B a second were measured)" in told
    assert re.search(r"paced:20%: about 2 epochs; destinations fetch ahead for 0\.\d\d s", told)
    assert re.search(r"a worker: \d epochs, (.+) s of reading; the busiest worker has \1 s", told)
    query.epoch()  # with two there is a pace
    assert query.command("plan", "--workers", "8", "--explain") == 0
    assert re.search(r"paced:20%: about 2 epochs, about \d+ s; dest", capsys.readouterr().out)


def test_status_tells_load_event_time_and_backlog(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three records at one worker and one at the other; the greatest time is 9 s past midnight,
    the delay 1 s; and 12,345 offsets are left to read."""
    sim = simulate(tmp_path, WINDOWS.operator, schema=WINDOWS.schema)
    records = pa.Table.from_pylist(list(WINDOWS.records), schema=WINDOWS.schema)
    hashes = hash_rows(records.select(WINDOWS.operator.key.names))
    owners = sim.driver.routing("windows").owners_at(hashes).tolist()
    placed = list(zip(WINDOWS.records, owners, strict=True))
    last, other = next((row, owner) for row, owner in placed if row["at"] == at(9))
    sim.feed([last, *[row for row, owner in placed if owner != other][:3]])
    assert main(["status", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "last epoch 4 records, imbalance 1.50\n" in text
    assert "watermark" not in text  # there was none in the only epoch
    sim.driver.begin(Epoch(1), NO_SPARK, "1", backlog=12_345)
    assert main(["status", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("epoch 0, epoch 1 in flight, backlog 12,345\n")
    assert "\nwatermark 2020-01-01 00:00:08\n" in text
    assert main(["status", str(tmp_path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["epoch"], data["begun"], data["backlog"]) == (0, 1, 12_345)
    windows = data["operators"]["windows"]
    assert (windows["imbalance"], windows["records"]) == (1.5, 4)
    assert windows["workers"][other]["records"] == 1
    midnight = datetime(2020, 1, 1, tzinfo=UTC).timestamp()
    assert windows["watermark"] == (midnight + 8) * 1_000_000


def test_plan_and_apply(query: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    assert query.command("plan", "--workers", "4", "--out", str(file)) == 0
    assert "8 of 16 bins move" in capsys.readouterr().err
    assert query.command("plan", "--workers", "4", "--out", str(file)) == 2  # it is there
    assert query.command("plan", "--workers", "4", "--explain") == 0
    explained = capsys.readouterr().out
    assert "2 -> 4 workers, 8 of 16 bins move" in explained
    assert re.search(r"4-7 +0 +2 +\d+ B", explained)
    assert "fluid: 8 epochs" in explained
    assert query.command("apply", str(file), "--strategy", "batched:3", "--watch") == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("migration 1 is done")
    assert query.driver.routing("counts") == Routing.even(16, 2).spread(4)
    before = content(tmp_path / "godwit")
    assert query.command("apply", str(file)) == 2
    assert "another routing of operator 'counts'" in capsys.readouterr().err
    assert content(tmp_path / "godwit") == before
    assert query.command("history", "--json") == 0
    (past,) = json.loads(capsys.readouterr().out)["migrations"]
    assert (past["workers"], past["bins"], past["outcome"]) == ([2, 4], 8, "done")


def test_apply_with_a_deadline_and_in_place_of_another(
    moving: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [
        "--deadline",
        "0.01",
        "--on-timeout",
        "rollback",
        "--supersede",
        "--strategy",
        "fluid",
    ]
    assert moving.command("apply", "--workers", "3", *options, "--watch", "--json") == 1
    first, *_, last = capsys.readouterr().out.splitlines()
    assert json.loads(first)["answer"] == "accepted"
    assert json.loads(last)["migration"]["outcome"] == "rolled back"
    assert moving.command("history", "--json") == 0
    outcomes = [past["outcome"] for past in json.loads(capsys.readouterr().out)["migrations"]]
    assert sorted(outcomes) == ["rolled back", "superseded"]


def test_a_plan_in_which_nothing_moves_is_one_line(
    query: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    even = "all bins are already spread evenly over 2 workers: nothing to move\n"
    for command in (["plan", "--explain"], ["apply", "--watch"], ["apply", "--dry-run"]):
        assert query.command(*command, "--workers", "2") == 0
        assert capsys.readouterr() == (even, "")
    assert query.command("plan", "--workers", "2") == 0
    told = capsys.readouterr()
    assert (json.loads(told.out)["moves"], told.err) == ([], even)
    assert query.command("apply", "--workers", "2", "--json") == 0
    assert json.loads(capsys.readouterr().out)["answer"] == "nothing to move"
    assert query.command("plan", "--rebalance", "--tau", "5", "--explain") == 0
    assert "bins are already where this plan wants them, on 2 workers" in capsys.readouterr().out
    query.driver.requests.migrate("counts", Routing.even(16, 4))
    assert query.command("apply", "--workers", "2", "--supersede", "--watch") == 0
    assert "migration 2 is done" in capsys.readouterr().out
    assert query.driver.routing("counts").workers == 2


def test_one_of_several_operators_has_to_be_named(query: Running) -> None:
    overview = Overview.of(query.checkpoint)
    view = overview.operators["counts"]
    several = replace(overview, operators={"sessions": view, "hourly": view})
    with pytest.raises(ConfigError, match="say --operator sessions or --operator hourly"):
        several.operator(None)


def test_nothing_to_abort(query: Running, capsys: pytest.CaptureFixture[str]) -> None:
    assert query.command("abort") == 2
    assert "no open migration" in capsys.readouterr().err


def test_abort(moving: Running, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", str(moving.checkpoint)]) == 0
    assert "migration 1: 2 -> 4 workers, fluid, moving, 1 of 3,072 bins" in capsys.readouterr().out
    assert moving.command("watch", "0") == 2  # and not the newest
    assert "migration 0 of operator 'counts' is not known" in capsys.readouterr().err
    assert moving.command("abort", "--rollback") == 0
    assert moving.command("watch") == 1
    assert capsys.readouterr().out.splitlines()[-1].endswith("migration 1 is rolled back")
    assert moving.driver.routing("counts") == Routing.even(4096, 2)
    assert moving.command("history") == 0
    assert "rolled back" in capsys.readouterr().out


def test_a_refusal_is_told(moving: Running, capsys: pytest.CaptureFixture[str]) -> None:
    assert moving.command("apply", "--workers", "3") == 1
    told = capsys.readouterr().err
    assert "was refused: migration 1 of operator 'counts' is open; wait for its end" in told
    assert "supersede it with --supersede, in a program with supersede=True" in told


def test_without_records_the_load_is_even(
    query: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    query.epoch()
    assert main(["status", str(query.checkpoint)]) == 0
    assert "last epoch 0 records, imbalance 1.00\n" in capsys.readouterr().out


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert re.fullmatch(r"godwit \d+\.\d+\.\d+\n", capsys.readouterr().out)


def test_some_workers_without_a_bin_are_told(
    query: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    assert query.command("plan", "--workers", "20", "--explain") == 0
    told = capsys.readouterr()
    assert told.err == "20 workers share 16 bins: at least 4 have none\n"
    assert "batched:2: 7 epochs" in told.out


def test_an_output_that_nobody_reads(query: Running) -> None:
    program = "import sys; from godwit.cli import main; sys.exit(main())"
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", program, "status", str(query.checkpoint)]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")


def run(arguments: list[str]) -> int:
    """A command, whose arguments may be none that it has."""
    try:
        return main(arguments)
    except SystemExit as end:
        return int(end.code or 0)


BAD = {
    "neither": (["apply", "{}"], "say what to do: a plan, --workers N"),
    "both": (["apply", "{}", "plan.json", "--workers", "2"], "give no --workers"),
    "strategy": (["apply", "{}", "--workers", "2", "--strategy", "x"], "unknown strategy 'x'"),
    "operator": (["apply", "{}", "--workers", "2", "--operator", "sums"], "unknown operator"),
    "workers": (["plan", "{}", "--workers", "0"], "workers must be from 1"),
    "plan file": (["apply", "{}", "missing.json"], "missing.json: no such file or directory$"),
    "out": (
        ["plan", "{0}", "--workers", "4", "--out", "{0}/godwit/format.json"],
        r"/format\.json exists already; name another file$",
    ),
    "half a plan": (["apply", "{0}", "{0}/half.json"], r"half\.json: .*it lacks routing, moves"),
    "no plan": (["apply", "{}", sys.executable], r"can read \(it is not JSON\)$"),
    "no numbers": (["apply", "{0}", "{0}/bins.json"], "'bins': 'x'.* than whole numbers from 0"),
    "no moves": (["apply", "{0}", "{0}/moves.json"], "its moves are no list"),
    "no migration": (["watch", "{}"], "there is no migration of operator 'counts'$"),
    "no workers": (["plan", "{}"], "say what to plan: --workers N"),
    "no command": ([], "required: COMMAND; see godwit --help"),
    "deadline": (
        ["apply", "{}", "--workers", "2", "--deadline", "nan"],
        "--deadline: it must .* above 0",
    ),
    "past": (["apply", "{}", "--workers", "2", "--deadline", "-5"], "seconds above 0, not '-5'"),
    "option": (["apply", "{}", "--wrokers", "2"], "--wrokers 2; see godwit apply --help"),
    "timeout": (["apply", "{}", "--workers", "2", "--on-timeout", "x"], "invalid choice: 'x'"),
    "no checkpoint": (["status", "{}/other"], "or wait, if it has just been started"),
    "worker": (["handover", "{}", "one", "1"], "argument WORKER: invalid int value: 'one'"),
    "executor": (["drain", "{}"], "required: EXECUTOR; see godwit drain --help"),
    "state": (["state", "{}", "counts"], "give --key"),
    "key columns": (["state", "{}", "counts", "--key", "a", "--key", "b"], "the key has 1 column "),
    "format": (["state", "{}", "counts", "--export", "x.xls"], "ends in .parquet, .csv, .jsonl"),
    "projected": (
        ["plan", "{0}", "--workers", "4", "--planner", "markov", "--projected", "{0}/costs"],
        r"/costs: holds no finished projected costs; make them with 'godwit project'$",
    ),
    "tau": (["apply", "{0}", "{0}/half.json", "--tau", "0"], "a plan is made already"),
    "epoch": (["state", "{}", "counts", "--key", "a", "--epoch", "7"], "epoch 7 .* not retained"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_changes_nothing(
    query: Running, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, message = BAD[case]
    half = {"operator": "counts", "workers": 2}
    whole = half | {"routing": "", "moves": 7}
    moves = [{"bins": "x", "from": 0, "to": 1}]
    for name, data in {"half": half, "moves": whole, "bins": whole | {"moves": moves}}.items():
        (query.checkpoint / f"{name}.json").write_text(json.dumps(data))
    before = content(query.checkpoint)
    assert run([argument.format(query.checkpoint) for argument in arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("godwit")
    assert re.search(message, line)
    assert content(query.checkpoint) == before


def test_state(query: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    look_up = ["state", str(tmp_path), "counts", "--key"]
    assert main([*look_up, "a", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["word"], row["rows"], row["total"]) == ("a", 2, 2)
    assert main([*look_up, "zebra"]) == 1
    assert main([*look_up, "b"]) == 0
    assert "word  rows  total" in capsys.readouterr().out
    for suffix in ("parquet", "csv", "jsonl"):
        file = tmp_path / f"export.{suffix}"
        assert main(["state", str(tmp_path), "counts", "--export", str(file)]) == 0
        assert file.stat().st_size
    lines = (tmp_path / "export.jsonl").read_text().splitlines()
    assert {json.loads(line)["word"] for line in lines} == {"a", "b", "c"}


def test_keys_and_times_of_state_are_told_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = pa.schema({"at": pa.timestamp("us", tz="UTC"), "user": pa.int64(), "tag": pa.string()})
    last = AggregateOperator.of(
        "last", ["at", "user"], {"tag": ops.last("tag"), "n": ops.count()}, schema
    )
    sim = OperatorSimulation(tmp_path, last, schema)
    moment = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)
    sim.feed([{"at": moment, "user": 1234567, "tag": ""}, {"at": None, "user": 2, "tag": None}])
    look_up = ["state", str(tmp_path), "last", "--key"]
    assert main([*look_up, "2026-05-01 12:30:00Z", "--key", "1234567"]) == 0
    told = "2026-05-01 12:30:00.000000Z"
    assert re.search(rf'{told} +1234567 +"" +1 +\d+ +\d\n', capsys.readouterr().out)
    assert main(["state", str(tmp_path), "last", "--null-key", "--key", "2"]) == 0
    assert re.search(r"null +2 +null +1 ", capsys.readouterr().out)
    for suffix in ("csv", "jsonl"):
        file = tmp_path / f"export.{suffix}"
        assert main(["state", str(tmp_path), "last", "--export", str(file)]) == 0
        assert told in file.read_text()


def test_lists_do_not_fit_into_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = pa.schema({"word": pa.string()})
    seen = StateMachine.of("seen", "word", lambda *_: None, "at array<long>", "n long", schema)
    sim = OperatorSimulation(tmp_path, seen, schema)
    sim.feed(words("a"))
    file = tmp_path / "export.csv"
    assert main(["state", str(tmp_path), "seen", "--export", str(file)]) == 2
    assert "column 'at' is list<element: int64>, which CSV cannot hold" in capsys.readouterr().err
    assert not file.exists()
