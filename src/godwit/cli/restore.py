"""`godwit restore CHECKPOINT EPOCH`: roll a checkpoint back to a retained epoch."""

import argparse
from typing import Any

from godwit.cli.command import add_command
from godwit.cli.output import add_json, print_json
from godwit.errors import ConfigError, RefusedError
from godwit.log.history import History
from godwit.log.restore import restore
from godwit.model.ids import Epoch
from godwit.model.text import plural
from godwit.storage.location import open_store

EXAMPLES = """\
examples:
  godwit restore /data/checkpoints/counts
  godwit restore /data/checkpoints/counts 41

Without an epoch it lists those that can be restored. What came after the epoch is moved to
godwit/undone/, not deleted. The next start of the query reads the input of the later epochs again.

exit code: 0 it is restored, 2 it cannot be: nothing has changed
"""


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "restore",
        run,
        help="roll a checkpoint back to a retained epoch",
        description="Roll a checkpoint back to the end of a retained epoch. Stop the query first.",
        examples=EXAMPLES,
    )
    parser.add_argument("epoch", metavar="EPOCH", nargs="?", type=int, help="a retained epoch")
    parser.add_argument(
        "--force", action="store_true", help="although the query runs: it fails with FencedError"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    store = open_store(arguments.checkpoint)
    history = History.inspect(store)
    epochs = history.epochs()
    if arguments.epoch is None:
        _list(epochs, json=arguments.json)
        return 0
    drivers = history.generations()
    if drivers and drivers[-1].is_running and not arguments.force:
        raise RefusedError(
            f"the query runs: {drivers[-1]}. Stop it first, with "
            f"'godwit stop {arguments.checkpoint} --wait', or give --force"
        )
    requests = history.requests.ids()
    manifest = restore(arguments.checkpoint, arguments.epoch)
    undone = [epoch for epoch in epochs if epoch > manifest.epoch]
    dropped = sorted(set(requests) - set(history.requests.ids()))
    aside = f"{store}/godwit/undone/{history.newest_generation()}"
    if arguments.json:
        print_json(
            {"epoch": manifest.epoch, "undone": undone, "requests": dropped, "kept_in": aside}
        )
        return 0
    print(f"restored the end of epoch {manifest.epoch}")
    if undone:
        last = f" to {undone[-1]}" if len(undone) > 1 else ""
        print(f"undone: {plural(len(undone), 'epoch')}, {undone[0]}{last}")
    if dropped:
        print(f"dropped: {plural(len(dropped), 'request')}, {', '.join(map(str, dropped))}")
    if undone or dropped:
        print(f"kept in {aside}")
    if undone:
        print(
            f"if the query has a files sink: move its directories epoch={undone[0]} and later away "
            "before the next start, which refuses them"
        )
    print(
        f"the next start runs epoch {manifest.epoch + 1}, from the input that epoch "
        f"{manifest.epoch} left to read"
    )
    return 0


def _list(epochs: list[Epoch], *, json: bool) -> None:
    if json:
        print_json({"epochs": epochs})
        return
    if not epochs:
        raise ConfigError("no epoch is published yet, so none can be restored")
    print("epochs that can be restored:", ", ".join(map(str, epochs)))
