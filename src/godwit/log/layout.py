"""The names of the log's files, below `CHECKPOINT/godwit/`."""

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


def generation_name(number: int) -> str:
    return f"{GENERATIONS}/{number}.json"


def intent_name(epoch: int) -> str:
    return f"{INTENTS}/{epoch}.json"


def manifest_name(epoch: int) -> str:
    return f"{MANIFESTS}/{epoch}.json"


def request_name(number: int) -> str:
    return f"{CONTROL}/{number}.json"


def undone_name(generation: int, name: str) -> str:
    return f"{UNDONE}/{generation}/{name}"
