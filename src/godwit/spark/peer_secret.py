"""What keepers of a query know each other by, made where the driver is."""

import base64
import os
import secrets
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

from pyspark import SparkContext

from godwit.errors import ConfigError
from godwit.model.options import Replication
from godwit.spark.executors import is_alone
from godwit.worker.peer_key import PeerKey

ENCRYPTING: Final = (
    "spark.network.crypto.enabled",
    "spark.ssl.rpc.enabled",
    "spark.authenticate.enableSaslEncryption",
)
ALIAS: Final = "godwit"
PASSWORD: Final = "GODWIT_KEYSTORE"  # in the environment of keytool alone
SECONDS: Final = 60


def peer_key(context: SparkContext, replication: Replication) -> PeerKey | None:
    """A new secret if executors are to send each other files, with a certificate if Spark encrypts
    what they send each other; None if they are not."""
    if replication not in get_args(Replication):
        known = " or ".join(f'"{one}"' for one in get_args(Replication))
        raise ConfigError(f"replication is {known}, not {replication!r}")
    if replication == "pull" or is_alone(context):
        return None
    conf = context._jsc.sc().conf()
    if not any(conf.getBoolean(name, False) for name in ENCRYPTING):
        return PeerKey.make()
    return PeerKey.make(*certificate(context._gateway))


def certificate(gateway: Any) -> tuple[str, str]:
    """A new certificate and its private key, as PEM, by what comes with the JVM."""
    java, password = gateway.jvm.java, secrets.token_hex(32)
    with tempfile.TemporaryDirectory() as directory:  # for nobody else
        path = Path(directory) / "keys.p12"
        keytool = _Keytool(str(java.lang.System.getProperty("java.home")), path, password)
        keytool.run("-genkeypair -dname CN=godwit -validity 36500 -keyalg EC -groupname secp256r1")
        public = keytool.run("-exportcert -rfc")
        characters = gateway.new_array(gateway.jvm.char, len(password))
        for place, character in enumerate(password):
            characters[place] = character
        store = java.security.KeyStore.getInstance("PKCS12")
        stream = java.io.FileInputStream(str(path))
        try:
            store.load(stream, characters)
        finally:
            stream.close()
    wanted = java.lang.Class.forName("java.security.spec.PKCS8EncodedKeySpec")
    factory = java.security.KeyFactory.getInstance("EC")
    private = factory.getKeySpec(store.getKey(ALIAS, characters), wanted).getEncoded()
    text = base64.encodebytes(bytes(private)).decode()
    return public, f"-----BEGIN PRIVATE KEY-----\n{text}-----END PRIVATE KEY-----\n"


@dataclass(frozen=True, slots=True)
class _Keytool:
    """The program of that name, on a file of keys."""

    home: str
    path: Path
    password: str

    def run(self, command: str) -> str:
        where = ["-storetype", "PKCS12", "-keystore", str(self.path), "-storepass:env", PASSWORD]
        try:
            done = subprocess.run(
                [f"{self.home}/bin/keytool", *command.split(), "-alias", ALIAS, *where],
                env={**os.environ, PASSWORD: self.password},
                check=True,
                capture_output=True,
                text=True,
                timeout=SECONDS,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ConfigError(
                "Spark encrypts what executors send each other, and for a certificate of its own "
                f'replication="chain" needs keytool, which does not run ({error}); install a '
                'complete Java, or start the query with replication="pull"'
            ) from error
        return done.stdout
