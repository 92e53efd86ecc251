"""How far Spark knows the sources of a query to go on."""

import json
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery


def latest_offsets(query: StreamingQuery | None) -> list[Any]:
    """The newest offset of each source that Spark's last report on the query knew of."""
    progress = query.lastProgress if query else None
    sources = json.loads(progress.json)["sources"] if progress else []
    return [source.get("latestOffset") for source in sources]
