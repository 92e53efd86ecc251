"""What keepers know each other by: made anew for each start, with a certificate of the JVM's."""

import pickle
import socket
import threading
from typing import Any

import pytest
from pyspark.sql import SparkSession

import godwit as gw
from godwit.model.ids import ExecutorId
from godwit.spark.peer_secret import certificate, peer_key
from godwit.worker.chain_events import Lack
from godwit.worker.peer_key import PeerKey
from godwit.worker.peer_wire import Hello, answer, call

pytestmark = pytest.mark.spark


def test_on_one_machine_and_with_pull_there_is_none(spark: SparkSession) -> None:
    assert peer_key(spark.sparkContext, "pull") is None
    assert peer_key(spark.sparkContext, "chain") is None


def test_another_way_is_refused(spark: SparkSession) -> None:
    wrong: Any = "push"
    with pytest.raises(gw.ConfigError, match='replication is "pull" or "chain", not \'push\''):
        peer_key(spark.sparkContext, wrong)


def test_who_has_the_certificate_can_talk_and_nobody_else(spark: SparkSession) -> None:
    first, second = (
        PeerKey.make(*certificate(spark.sparkContext._gateway)),
        PeerKey.make(*certificate(spark.sparkContext._gateway)),
    )
    copy = pickle.loads(pickle.dumps(first))  # as executors get it
    heard: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"

        def listen() -> None:
            for _ in range(2):
                try:
                    wire, hello = answer(listener.accept()[0], first)
                except OSError as error:
                    heard.append(type(error))
                    continue
                heard.extend([hello.executor, wire.hear()])
                wire.close()

        listening = threading.Thread(target=listen)
        listening.start()
        wire = call(address, copy, Hello(ExecutorId("7"), "keeper"))
        wire.say(Lack("file"))
        with pytest.raises(OSError, match="CERTIFICATE"):
            call(address, second, Hello(ExecutorId("8"), "keeper"))
        listening.join()
        wire.close()
    assert heard[:2] == ["7", Lack("file")]
    assert len(heard) == 3
