"""The names of the log's files, below `CHECKPOINT/godwit/`."""

from urllib.parse import quote

from godwit.model.ids import ExecutorId

HOME = "godwit"
SPARK = "spark"

FORMAT = "format.json"
TICKS = "ticks"
GENERATIONS = "generations"
INTENTS = "intents"
MANIFESTS = "manifests"
CONTROL = "control"
STAGING = "staging"
UNDONE = "undone"
REPLICAS = "replicas"


def generation_name(number: int) -> str:
    return f"{GENERATIONS}/{number}.json"


def ended_name(number: int) -> str:
    """Beside a generation whose query is known to have ended."""
    return f"{GENERATIONS}/{number}-ended.json"


def intent_name(epoch: int) -> str:
    return f"{INTENTS}/{epoch}.json"


def manifest_name(epoch: int) -> str:
    return f"{MANIFESTS}/{epoch}.json"


def addition_name(epoch: int, number: int) -> str:
    """Beside the manifest of an epoch: one of its additions, numbered from 0."""
    return f"{MANIFESTS}/{epoch}-added-{number}.json"


def request_name(number: int) -> str:
    return f"{CONTROL}/{number}.json"


def replicas_name(generation: int, executor: ExecutorId) -> str:
    return f"{REPLICAS}/{generation}-{quote(executor, safe='')}.json"


def undone_name(generation: int, name: str) -> str:
    return f"{UNDONE}/{generation}/{name}"
