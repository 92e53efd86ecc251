"""Ways to damage a checkpoint, from a flipped byte to files and manifests that lie in agreement."""

import json
import zlib
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from godwit.log import History, Intent
from godwit.log.records import decode, encode
from godwit.model.files import FileRef
from godwit.model.manifest import Manifest, output_files, state_files
from godwit.model.routing import Routing
from godwit.state import file as state_file

Body = dict[str, Any]


def manifest(checkpoint: Path, epoch: int) -> Manifest:
    found = History(checkpoint).manifest(epoch)
    assert found is not None
    return found


def intent(checkpoint: Path, epoch: int) -> Intent:
    found = History(checkpoint).intent(epoch)
    assert found is not None
    return found


def routing(checkpoint: Path, epoch: int) -> Routing:
    return intent(checkpoint, epoch).routings["counts"]


def new_files(checkpoint: Path, epoch: int, kind: str) -> list[FileRef]:
    """The files of a kind (delta, merge, output) that an epoch wrote, in the order of workers."""
    named = manifest(checkpoint, epoch)
    refs = output_files(named) if kind == "output" else state_files(named)
    return sorted(
        (ref for ref in refs if f"/e{epoch}-" in ref.name and f"-{kind}-" in ref.name),
        key=lambda ref: ref.name,
    )


# -- bytes -----------------------------------------------------------------------------------------


def flip(path: Path, position: float = 0.5) -> None:
    """Flip one bit of the byte at a position from 0 to 1."""
    data = bytearray(path.read_bytes())
    data[int(position * len(data))] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


# -- records ---------------------------------------------------------------------------------------


def edit(path: Path, kind: str, change: Callable[[Body], Any]) -> None:
    """Change the body of a record, and make its checksum right again."""
    body = decode(str(path), path.read_bytes(), kind)
    change(body)
    path.write_bytes(encode(kind, body))


def edit_manifest(checkpoint: Path, epoch: int, change: Callable[[Body], Any]) -> None:
    edit(checkpoint / f"godwit/manifests/{epoch}.json", "manifest", change)


def edit_intent(checkpoint: Path, epoch: int, change: Callable[[Body], Any]) -> None:
    edit(checkpoint / f"godwit/intents/{epoch}.json", "intent", change)


def edit_trees(checkpoint: Path, epochs: range, change: Callable[[Body], Any]) -> None:
    """Change the tree of the only table in the manifests of some epochs."""
    for epoch in epochs:
        edit_manifest(checkpoint, epoch, lambda body: change(body["trees"]["counts"]["value"]))


def runs_of(tree: Body, name: str) -> Iterator[tuple[list[int], int]]:
    """Layers of a tree in which a file has a run, and the place of that run."""
    number = [ref[0] for ref in tree["files"]].index(name)
    for layer in chain.from_iterable(tree["segments"]):
        for place in range(0, len(layer), 3):
            if layer[place] == number:
                yield layer, place


# -- state files -----------------------------------------------------------------------------------


def rewrite(
    checkpoint: Path,
    name: str,
    rows: Callable[[pa.Table], pa.Table] = lambda rows: rows,
    meta: Callable[[Body], Any] = lambda meta: None,
) -> None:
    """Write a state file anew with other rows or metadata, and let all manifests agree with it."""
    path = checkpoint / "godwit" / name
    with pa.OSFile(str(path)) as source:
        table = pa.ipc.open_file(source).read_all()
    data = json.loads(table.schema.metadata[state_file.METADATA])
    meta(data)
    changed = rows(table.replace_schema_metadata(None)).combine_chunks()
    schema = changed.schema.with_metadata({state_file.METADATA: json.dumps(data)})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(changed.to_batches()[0].replace_schema_metadata(schema.metadata))
    reseal(checkpoint, name)


def reseal(checkpoint: Path, name: str) -> None:
    """Let all manifests say of a file what its bytes now are."""
    data = (checkpoint / "godwit" / name).read_bytes()

    def change(body: Body) -> None:
        for tables in body["trees"].values():
            for ref in chain.from_iterable(tree["files"] for tree in tables.values()):
                if ref[0] == name:
                    ref[2:] = [len(data), zlib.crc32(data)]

    history = History(checkpoint)
    for epoch in history.epochs():
        edit_manifest(checkpoint, epoch, change)
        for added in history.addition_names(epoch):
            edit(checkpoint / "godwit" / added, "addition", lambda body: change(body["manifest"]))
