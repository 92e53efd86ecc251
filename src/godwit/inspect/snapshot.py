"""The state of one table as of a committed epoch, read from the checkpoint alone."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from godwit.errors import CheckpointError, ConfigError, DamagedFileError
from godwit.log.history import History
from godwit.log.intent import Intent
from godwit.model.manifest import Manifest
from godwit.model.routing import SEGMENTS, Routing
from godwit.model.schema import parse
from godwit.model.tree import Tree
from godwit.state import file as state_file
from godwit.state.file import StateFile
from godwit.state.merge import merge
from godwit.state.run import Run
from godwit.state.table import TableSpec
from godwit.state.timed import is_timed, key_hashes, pending
from godwit.storage.location import Location
from godwit.storage.store import Store


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One table of one operator at one epoch; any process that sees the checkpoint can read it."""

    checkpoint: Store
    epoch: int
    spec: TableSpec
    tree: Tree
    routing: Routing
    watermark: int | None

    @classmethod
    def open(
        cls,
        checkpoint: Location,
        operator: str,
        *,
        table: str | None = None,
        epoch: int | None = None,
    ) -> "Snapshot":
        """The state of `operator` at `epoch`; by default the only table that its user has named, at
        the newest epoch."""
        history = History.inspect(checkpoint)
        manifest, intent = _records(history, epoch)
        specs = table_specs(manifest, operator)
        if table is None:
            named = [name for name in specs if not name.startswith("_")]
            if len(named) > 1:
                raise ConfigError(
                    f"operator '{operator}' has several tables; name one of {', '.join(named)}"
                )
            (table,) = named
        if table not in specs:
            raise ConfigError(f"unknown table '{table}'; '{operator}' has {', '.join(specs)}")
        return cls(
            checkpoint=history.checkpoint,
            epoch=manifest.epoch,
            spec=specs[table],
            tree=manifest.trees[operator][table].unpack(),
            routing=intent.routings[operator],
            watermark=intent.watermarks.get(operator),
        )

    @property
    def schema(self) -> pa.Schema:
        """Key, sub-key and value columns, then `_bin` and `_worker`."""
        place = [pa.field("_bin", pa.int32()), pa.field("_worker", pa.int32())]
        return pa.schema([*self.spec.key, *self.spec.sub, *self.spec.value, *place])

    def read(self, segments: Iterable[int] = range(SEGMENTS)) -> Iterator[pa.Table]:
        """The live rows of some segments, by default of all, a table a segment."""
        files = cache(self._open)
        for segment in segments:
            runs = [files(run.file).segment(segment) for run in self.tree.runs(segment)]
            if is_timed(self.spec):
                runs = pending(runs, segment, self.watermark)
            if runs:
                yield self._placed(merge(runs, self.spec, final=True))

    def segment(self, number: int) -> pa.Table:
        """The live rows of one segment."""
        return pa.concat_tables([self.schema.empty_table(), *self.read([number])])

    def _open(self, name: str) -> StateFile:
        history = History(self.checkpoint)
        try:
            return state_file.read(history.files, name, self.spec, self.tree.files[name])
        except DamagedFileError as error:
            if self.epoch in history.epochs():
                raise
            raise ConfigError(
                f"epoch {self.epoch} of {self.checkpoint} was pruned while it was read; read a "
                "newer epoch, or let the query retain more of them"
            ) from error

    def _placed(self, live: Run) -> pa.Table:
        bins = self.routing.bins_at(key_hashes(self.spec, live))
        columns = [*live.rows.columns[2:], pa.array(bins), pa.array(self.routing.owners[bins])]
        return pa.table(columns, schema=self.schema)


def table_specs(manifest: Manifest, operator: str) -> dict[str, TableSpec]:
    """The tables of an operator as a manifest describes them."""
    if operator not in manifest.operators:
        known = ", ".join(sorted(manifest.operators))
        raise ConfigError(f"unknown operator '{operator}'; the checkpoint holds {known}")
    described = manifest.operators[operator]
    key = parse(described.key)
    return {
        name: TableSpec(name, key, _schema(table.sub), _schema(table.value))
        for name, table in described.tables.items()
    }


def _schema(ddl: str) -> pa.Schema:
    return parse(ddl) if ddl else pa.schema([])


def _records(history: History, wanted: int | None) -> tuple[Manifest, Intent]:
    """Manifest and intent of an epoch; a running query may prune them while they are read."""
    while True:
        epochs = history.epochs()
        if not epochs:
            raise ConfigError(f"{history.checkpoint} holds no committed epoch yet")
        epoch = epochs[-1] if wanted is None else wanted
        if epoch not in epochs:
            raise ConfigError(
                f"epoch {epoch} of {history.checkpoint} is not retained; "
                f"{epochs[0]} to {epochs[-1]} are"
            )
        try:
            manifest, intent = history.manifest(epoch), history.intent(epoch)
        except DamagedFileError:
            if epoch in history.epochs():
                raise
            continue
        if manifest is not None and intent is not None:
            return manifest, intent
        if epoch in history.epochs():
            raise CheckpointError(
                str(history.checkpoint), f"the intent of epoch {epoch} is missing"
            )
