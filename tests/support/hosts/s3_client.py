"""A client of a store: `python -m tests.support.hosts.s3_client`, with JSON on its input.

The bucket, how often it tries a request again, its patience in seconds, and operations, such as
{"op": "create", "key": "a", "value": "1"}. It prints that it is ready, waits for a line, and prints
what came of each operation.
"""

import json
import sys
import time
from collections.abc import Mapping
from typing import Any, Literal

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

Operation = Literal["create", "overwrite", "get"]


def do(store: S3Store, op: Operation, key: str, value: str = "") -> Mapping[str, Any]:
    """Its value or its error, and the seconds that it took."""
    began, said, error = time.monotonic(), None, None
    try:
        if op == "get":
            said = bytes(obstore.get(store, key).bytes()).decode()
        else:
            obstore.put(store, key, value.encode(), mode=op)
    except (BaseError, OSError) as raised:
        error = f"{type(raised).__name__}: {raised}"
    return {"value": said, "error": error, "seconds": time.monotonic() - began}


if __name__ == "__main__":
    bucket, retries, timeout, operations = json.loads(sys.stdin.readline())
    store = S3Store(
        bucket,
        client_options={"allow_http": True, "timeout": f"{timeout}s"},
        retry_config={"max_retries": retries},
    )
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps([do(store, **operation) for operation in operations]))
