"""The durable log of a checkpoint: intents, manifests, generations and control requests."""

from godwit.log.history import Generation, History
from godwit.log.intent import Intent
from godwit.log.journal import Journal
from godwit.log.requests import RequestLog
from godwit.log.restore import restore
from godwit.log.spark_log import agree, offsets_digest, query_id

__all__ = [
    "Generation",
    "History",
    "Intent",
    "Journal",
    "RequestLog",
    "agree",
    "offsets_digest",
    "query_id",
    "restore",
]
