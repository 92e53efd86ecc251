"""What a join does in an epoch: which rows match, come out, stay and leave."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from godwit.model.keys import Groups, Mask, Rows, changes, distinct, flat
from godwit.operators.base import Changes, Hashes, TableView, TimedView
from godwit.operators.definition import INPUT, MATCHED, POSITION, TIME
from godwit.operators.due_keys import in_order
from godwit.operators.matching import Matches, SideRows
from godwit.state.table import DELETE, UPSERT, TableSpec
from godwit.state.timed import AT, KEY_HASH, Moments, moments, waiting

if TYPE_CHECKING:
    from godwit.operators.join import JoinOperator, JoinSide

_ORDINAL_BITS: Final = 32

Piece = tuple[Rows, Sequence[Sequence[pa.Array] | None]]  # groups, and the columns of each side


@dataclass(frozen=True, slots=True)
class _Due:
    """The rows of one side that leave: by key, time and position."""

    hashes: Hashes
    keys: pa.Table
    times: Moments
    positions: Rows

    @classmethod
    def of(cls, side: "JoinSide", key: pa.Schema, state: Mapping[str, TableView]) -> Self:
        none = np.empty(0, np.int64)
        if side.stay is None:
            return cls(none.view(np.uint64), key.empty_table(), none, none)
        rows = cast(TimedView, state[side.waits]).due()
        return cls(
            flat(rows.column(KEY_HASH)).to_numpy().view(np.uint64),
            rows.select(key.names),
            moments(rows.column(AT)) - side.stay - 1,
            flat(rows.column(POSITION)).to_numpy(),
        )


class JoinEpoch:
    """The records of one worker and epoch, and the stored rows that they match or that leave.

    A group is the key of any of them. A record with a null in its key is `lone`: it matches nothing
    and is not stored.
    """

    def __init__(
        self,
        join: "JoinOperator",
        epoch: int,
        hashes: Hashes,
        records: pa.Table,
        state: Mapping[str, TableView],
    ) -> None:
        self._join, self._epoch, self._state = join, epoch, state
        self._until = None
        if join.within is not None:
            self._until = cast(TimedView, state[join.sides[0].waits]).span.until
        self._due = [_Due.of(side, join.key, state) for side in join.sides]
        every = np.concatenate((hashes, *(due.hashes for due in self._due)))
        keys = [records.select(join.key.names), *(due.keys for due in self._due)]
        self._groups: Groups = distinct(every, pa.concat_tables(keys), ordered=False)
        ends = np.cumsum((len(hashes), len(self._due[0].hashes)))
        of_records, *self._due_groups = np.split(self._groups.of_records(len(every)), ends)

        null = self._have_nulls()[of_records]
        inputs = flat(records.column(INPUT)).to_numpy()
        places = np.arange(len(hashes))
        ordinals = places - np.maximum.accumulate(np.where(changes(of_records), places, 0))
        times = places if join.within is None else moments(records.column(TIME))
        positions = ((epoch + 1) << _ORDINAL_BITS) + ordinals
        self._new, self._lone = [], []
        for i, side in enumerate(join.sides):
            columns = [flat(records.column(column)) for column in side.columns]
            matched = np.zeros(len(hashes), np.bool_)
            rows = SideRows(of_records, times, positions, matched, columns)
            self._new.append(rows.where((inputs == i) & ~null))
            self._lone.append(rows.where((inputs == i) & null))
        self._stored = [self._scan(0), self._scan(1)]

    def changes(self) -> Changes:
        (left, right), (known_left, known_right) = self._new, self._stored
        forward = self._join.within
        backward = None if forward is None else (-forward[1], -forward[0])
        groups = len(self._groups.hashes)
        with_known = Matches.of(left, known_right, groups, forward)
        with_new = Matches.of(left, right, groups, forward)
        known_with = Matches.of(right, known_left, groups, backward)
        hits = with_known.any() | with_new.any(), with_new.others() | known_with.any()
        known_hits = known_with.others(), with_known.others()

        pieces: list[Piece] = []
        if self._join.how == "semi":
            pieces += [
                (rows.groups, (rows.columns, None))
                for rows in (left.where(hits[0]), known_left.where(known_hits[0]))
            ]
        elif not self._join.once:
            for others, matches in ((known_right, with_known), (right, with_new)):
                places, found = matches.pairs()
                pieces.append((left.groups[places], (left.take(places), others.take(found))))
            places, found = known_with.pairs()
            pieces.append((right.groups[places], (known_left.take(found), right.take(places))))
        deltas: dict[str, pa.Table] = {}
        for i in range(2):
            pieces += self._unmatched(i, hits[i], known_hits[i])
            deltas |= self._deltas(i, hits[i], known_hits[i])
        return Changes(deltas, self._outputs(pieces))

    def _have_nulls(self) -> Mask:
        """Which groups have a null in their key."""
        null = np.zeros(len(self._groups.hashes), np.bool_)
        for column in self._groups.keys.columns:
            if column.null_count:
                null |= flat(pc.is_null(column)).to_numpy(zero_copy_only=False)
        return null

    def _scan(self, i: int) -> SideRows:
        """The stored rows of a side that new ones of the other may match, or that may come out."""
        side, groups = self._join.sides[i], self._groups
        wanted = np.zeros(len(groups.hashes), np.bool_)
        wanted[self._new[1 - i].groups] = True
        if side.kept:
            wanted[self._due_groups[i]] = True
        chosen = np.flatnonzero(wanted)
        view = self._state[side.kind]
        index, rows = view.scan(groups.hashes[chosen], groups.keys.take(pa.array(chosen)))
        positions = flat(rows.column(POSITION)).to_numpy()
        matched = flat(rows.column(MATCHED)).to_numpy(zero_copy_only=False)
        times = positions if side.stay is None else moments(rows.column(TIME))
        names = [TIME if column == TIME else name for column, name in side.columns.items()]
        columns = [flat(rows.column(name)) for name in names]
        return SideRows(chosen[index], times, positions, matched, columns)

    def _leave(self, side: "JoinSide", times: Moments) -> Mask:
        """Which rows of a side can match no more."""
        if side.stay is None or self._until is None:
            return np.zeros(len(times), np.bool_)
        return times + side.stay < self._until

    def _unmatched(self, i: int, hits: Mask, known_hits: Mask) -> Iterator[Piece]:
        side, new, stored = self._join.sides[i], self._new[i], self._stored[i]
        if not side.kept:
            return
        leave = self._leave(side, stored.times) & ~known_hits & ~stored.matched
        over = (stored.where(leave), new.where(self._leave(side, new.times) & ~hits), self._lone[i])
        for rows in over:
            yield rows.groups, (rows.columns, None) if i == 0 else (None, rows.columns)

    def _deltas(self, i: int, hits: Mask, known_hits: Mask) -> dict[str, pa.Table]:
        """The changed rows of a side, and when its new ones leave."""
        side, new, stored = self._join.sides[i], self._new[i], self._stored[i]
        spec, due = self._state[side.kind].spec, self._due[i]
        stays, known_stays = ~self._leave(side, new.times), ~self._leave(side, stored.times)
        done = self._join.once and i == 0
        begun = replace(new, matched=hits & side.flagged).where(stays & ~hits if done else stays)
        if self._join.once and side.stay is None and i == 1:  # one row a key says as much as all
            begun = begun.where(changes(begun.groups))
            begun = replace(begun, positions=np.zeros_like(begun.positions))
        changed = [self._rows(spec, UPSERT, begun)]
        if done:
            changed.append(self._rows(spec, DELETE, stored.where(known_hits & known_stays)))
        elif side.flagged:
            turned = stored.where(known_hits & known_stays & ~stored.matched)
            flags = np.ones(len(turned), np.bool_)
            changed.append(self._rows(spec, UPSERT, replace(turned, matched=flags)))
        if side.stay is None:
            return {side.kind: in_order(*changed)}
        groups = self._due_groups[i]
        gone = SideRows(groups, due.times, due.positions, np.ones(len(groups), np.bool_), ())
        waits = waiting(
            self._state[side.waits].spec,
            self._epoch,
            self._groups.hashes[begun.groups],
            begun.times + side.stay + 1,
            self._keys(begun.groups),
            pa.table({POSITION: begun.positions}),
        )
        return {
            side.kind: in_order(*changed, self._rows(spec, DELETE, gone)),
            side.waits: waits,
        }

    def _rows(self, spec: TableSpec, op: int, rows: SideRows) -> pa.Table:
        """Rows of a side as they stand in its table."""
        count = len(rows)
        columns = [
            pa.array(self._groups.hashes[rows.groups]),
            pa.array(np.full(count, op, np.int8)),
            *self._keys(rows.groups).columns,
        ]
        if TIME in spec.sub.names:
            columns.append(pa.array(rows.times).view(spec.sub.field(TIME).type))
        columns.append(pa.array(rows.positions))
        if op == DELETE:
            columns += [pa.nulls(count, field.type) for field in spec.value]
        else:
            columns += [pa.array(rows.matched), *rows.columns[TIME in spec.sub.names :]]
        return pa.table(columns, schema=spec.schema)

    def _keys(self, groups: Rows) -> pa.Table:
        return self._groups.keys.take(pa.array(groups))

    def _outputs(self, pieces: Sequence[Piece]) -> pa.Table:
        groups = [np.empty(0, np.int64), *(groups for groups, _ in pieces)]
        columns = self._keys(np.concatenate(groups)).columns
        fields = list(self._join.output)[len(columns) :]
        for i, side in enumerate(self._join.shown):
            for number in range(len(side.columns)):
                kind = fields.pop(0).type
                found = []
                for of_piece, sides in pieces:
                    of_side = sides[i]
                    found.append(
                        pa.nulls(len(of_piece), kind) if of_side is None else of_side[number]
                    )
                columns.append(pa.chunked_array(found, kind))
        return pa.table(columns, schema=self._join.output)
