"""The durable log of a checkpoint: intents, manifests, generations and control requests."""

from godwit.log.control import Control
from godwit.log.files import Files, Location
from godwit.log.history import Generation, History
from godwit.log.intent import Intent
from godwit.log.journal import Journal
from godwit.log.manifest import Manifest
from godwit.log.restore import restore
from godwit.log.spark_log import agree, offsets_digest, query_id

__all__ = [
    "Control",
    "Files",
    "Generation",
    "History",
    "Intent",
    "Journal",
    "Location",
    "Manifest",
    "agree",
    "offsets_digest",
    "query_id",
    "restore",
]
