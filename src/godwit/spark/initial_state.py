"""State that a new checkpoint, or a new operator of one, is given at a start."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame

from godwit.driver.driver import Driver
from godwit.driver.published import INITIAL
from godwit.errors import ConfigError
from godwit.log.intent import Intent
from godwit.model.ids import Epoch, WorkerId
from godwit.model.receipt import Receipt
from godwit.operators.base import Operator
from godwit.operators.event_machine import HELD
from godwit.operators.events import NOTICES
from godwit.operators.initial_state import Load
from godwit.operators.join import JoinOperator
from godwit.spark.operator_job import job_settings, plan
from godwit.spark.pinning import Pinning
from godwit.spark.route import column
from godwit.spark.types import to_arrow, to_spark
from godwit.state.timed import is_timed

Initial = Mapping[str, DataFrame | Mapping[str, DataFrame]]


def tables_of(initial: Initial, operators: Sequence[Operator]) -> dict[str, dict[str, DataFrame]]:
    """The initial state by operator and table, checked against the operators' tables."""
    by_name = {operator.name: operator for operator in operators}
    given: dict[str, dict[str, DataFrame]] = {}
    for name, state in initial.items():
        if name not in by_name:
            raise ConfigError(f"initial state for unknown operator '{name}'")
        _check_operator(by_name[name])
        specs = {spec.name: spec for spec in by_name[name].tables if not is_timed(spec)}
        if isinstance(state, DataFrame):
            if len(specs) > 1:
                names = ", ".join(specs)
                raise ConfigError(f"operator '{name}' has several tables; name them: {names}")
            state = {next(iter(specs)): state}
        if not isinstance(state, Mapping):
            raise ConfigError(
                f"the initial state of '{name}' must be a DataFrame, or DataFrames by table, "
                f"not {type(state).__name__}"
            )
        given[name] = {}
        for table, rows in state.items():
            if table not in specs:
                raise ConfigError(f"initial state for unknown table '{table}' of '{name}'")
            wanted = [*specs[table].key.names, *specs[table].sub.names, *specs[table].value.names]
            if missing := [one for one in wanted if one not in rows.columns]:
                raise ConfigError(
                    f"the initial state of '{name}' lacks column '{missing[0]}'; "
                    f"it must have {', '.join(wanted)}"
                )
            rows = rows.select(*map(column, wanted))
            _check_values(name, rows, specs[table].value)
            given[name][table] = _with_keys(name, rows, specs[table].key)
    return given


def _check_operator(operator: Operator) -> None:
    """Refuse one whose rows are more than what a user can tell of them: they wait for a moment that
    it has set. Notices and held records are apart from its state, which can do without them."""
    if isinstance(operator, JoinOperator):
        raise ConfigError(
            f"the state of operator '{operator.name}', a join, cannot be given at the start"
        )
    timed = {spec.name for spec in operator.tables if is_timed(spec)}
    if operator.describe().window is not None or timed - {NOTICES, HELD}:
        raise ConfigError(
            f"operator '{operator.name}' has windows, a ttl or `within`: its state depends on "
            "event time and cannot be given at the start"
        )


def _check_values(operator: str, rows: DataFrame, values: pa.Schema) -> None:
    """Refuse values of types that cannot become the operator's, whatever they are."""
    given = to_arrow(rows.select(*map(column, values.names)).schema)
    for have, want in zip(given, values, strict=True):
        if not _can_become(have.type, want.type):
            raise ConfigError(
                f"the initial state of '{operator}' has column '{want.name}' of type "
                f"{have.type}, the operator's is {want.type}; cast it"
            )


def _can_become(have: pa.DataType, want: pa.DataType) -> bool:
    if pa.types.is_decimal(want) and want.scale and not pa.types.is_decimal(have):
        return False  # Spark's state has some decimals as numbers, without their point
    try:
        pa.nulls(0, have).cast(want)
    except pa.ArrowNotImplementedError:
        return False
    return True


def _with_keys(operator: str, rows: DataFrame, key: pa.Schema) -> DataFrame:
    """The rows with keys of the operator's types, since hashes differ from type to type."""
    given = to_arrow(rows.select(*map(column, key.names)).schema)
    for have, want in zip(given, key, strict=True):
        if have.type == want.type:
            continue
        integers = pa.types.is_integer(have.type) and pa.types.is_integer(want.type)
        if not integers or have.type.bit_width > want.type.bit_width:
            raise ConfigError(
                f"the initial state of '{operator}' has key column '{want.name}' of type "
                f"{have.type}, the operator's is {want.type}; cast it"
            )
        wider = to_spark(pa.schema([want]))[0].dataType
        rows = rows.withColumn(want.name, column(want.name).cast(wider))
    return rows


def load(
    driver: Driver,
    initial: Mapping[str, Mapping[str, DataFrame]],
    pinning: Pinning,
    *,
    epoch: Epoch = INITIAL,
    query: str = "",
    offsets: str = "",
) -> None:
    """Publish the epoch before the first: state given at the start, table by table."""
    intent = driver.begin(epoch, query, offsets, executors=pinning.executors())
    if isinstance(intent, Intent):
        driver.commit(intent, _loaded(driver, intent, initial, pinning))


def load_added(
    driver: Driver, initial: Mapping[str, Mapping[str, DataFrame]], pinning: Pinning
) -> None:
    """Add the operators of which the checkpoint has nothing yet to its newest epoch, with the state
    that they are given. Where there is state already, it counts."""
    manifest = driver.published.manifest
    assert manifest is not None
    new = {name: tables for name, tables in initial.items() if name not in manifest.operators}
    if new:
        intent = driver.addition(new)
        driver.add(intent, _loaded(driver, intent, new, pinning))


def _loaded(
    driver: Driver,
    intent: Intent,
    initial: Mapping[str, Mapping[str, DataFrame]],
    pinning: Pinning,
) -> dict[str, list[Receipt]]:
    """What workers have loaded, by operator."""
    receipts: dict[str, list[Receipt]] = {}
    for name, routing in intent.routings.items():
        clocks = (None,) * driver.operators[name].inputs
        group = [Receipt(WorkerId(one), clocks=clocks) for one in range(routing.workers)]
        for table, rows in initial.get(name, {}).items():
            operator = Load(driver.operators[name], table)
            work = replace(driver.work(intent, name), operator=operator)
            slots = pinning.slots(rows.sparkSession, driver.placements.placement, routing.workers)
            with job_settings(rows.sparkSession):
                receipts_of_table = plan(work, rows, routing, slots).run()
            loaded = {receipt.worker: receipt for receipt in receipts_of_table}
            group = [_both(receipt, loaded[receipt.worker]) for receipt in group]
        receipts[name] = group
    return receipts


def _both(one: Receipt, other: Receipt) -> Receipt:
    return replace(
        one,
        records=one.records + other.records,
        deltas={**one.deltas, **other.deltas},
        executor=other.executor,
        failure=one.failure or other.failure,
    )
