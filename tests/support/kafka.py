"""A Kafka cluster for tests: librdkafka's own, in this process, over TCP.

It has topics, transactions and their commits. It fences no producer unless a test tells it to, it
shows aborted messages to readers of committed ones, and it makes no topics on request: asking for
one makes it.
"""

import ctypes
import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from enum import IntEnum
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition, cimpl

import godwit as gw
from godwit.spark.sinks.sink import Sink

TIMEOUT = 30.0
SETTINGS: Final = {"test.mock.num.brokers": "1", "bootstrap.servers": "unused", "log_level": "0"}


class Request(IntEnum):
    """What a producer asks of a broker, by the numbers of Kafka's protocol."""

    PRODUCE = 0
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    END_TXN = 26


class Cluster:
    """A cluster with one broker, which tells what it is asked, and answers as a test wants.

    This part of librdkafka is for C alone: its header is `rdkafka_mock.h`.
    """

    def __init__(self) -> None:
        self._library = ctypes.CDLL(cimpl.__file__)
        conf = self._call("conf_new", ctypes.c_void_p)
        for name, value in SETTINGS.items():
            self._call("conf_set", ctypes.c_int, conf, name.encode(), value.encode(), None, 0)
        producer = ctypes.c_int(0)
        self._host = self._call("new", ctypes.c_void_p, producer, conf, None, 0)
        self._mock = self._call("handle_mock_cluster", ctypes.c_void_p, self._host)
        found = self._call("mock_cluster_bootstraps", ctypes.c_char_p, self._mock)
        self.servers = bytes(found.value).decode()

    def close(self) -> None:
        self._call("destroy", None, self._host)

    @contextmanager
    def refusing(self, request: Request, error: int, times: int = 1) -> Iterator[None]:
        """Answer the next requests of a kind with an error."""
        kind, errors = ctypes.c_int16(request), (ctypes.c_int * times)(*[error] * times)
        count = ctypes.c_size_t(times)
        self._call("mock_push_request_errors_array", None, self._mock, kind, count, errors)
        try:
            yield
        finally:
            self._call("mock_clear_request_errors", None, self._mock, kind)

    @contextmanager
    def listening(self) -> Iterator[list[int]]:
        """Fill a list, at its end, with the kinds of requests that have come meanwhile."""
        found: list[int] = []
        self._call("mock_start_request_tracking", None, self._mock)
        try:
            yield found
            count = ctypes.c_size_t()
            pointers = ctypes.POINTER(ctypes.c_void_p)
            requests = self._call("mock_get_requests", pointers, self._mock, ctypes.byref(count))
            for number in range(count.value):
                one = ctypes.c_void_p(requests[number])
                found.append(self._call("mock_request_api_key", ctypes.c_int16, one).value)
            self._call("mock_request_destroy_array", None, requests, count)
        finally:
            self._call("mock_stop_request_tracking", None, self._mock)

    def _call(self, name: str, result: Any, *arguments: Any) -> Any:
        """A function of librdkafka; its result stays a value of C."""
        function = self._library[f"rd_kafka_{name}"]  # one that nobody else sets types of
        function.restype = result
        found = function(*arguments)
        return result(found) if isinstance(found, int | bytes) and result else found


@contextmanager
def cluster() -> Iterator[Cluster]:
    with closing(Cluster()) as cluster:
        yield cluster


def quiet(topic: str, servers: str, **named: Any) -> Sink:
    """A sink of which librdkafka says nothing when the cluster ends before it."""
    options = {"log_level": 0, **named.pop("options", {})}
    return gw.kafka(topic, servers, options=options, **named)


def make_topics(servers: str, names: Sequence[str]) -> None:
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    for name in names:
        producer.list_topics(name, timeout=TIMEOUT)


def messages(servers: str, topic: str) -> list[Message]:
    """All of a topic, in the order of partitions."""
    settings = {
        "bootstrap.servers": servers,
        "group.id": "tests",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,
        "isolation.level": "read_committed",
        "log_level": 0,
    }
    found = []
    with closing(Consumer(settings)) as consumer:
        for partition in consumer.list_topics(topic, timeout=TIMEOUT).topics[topic].partitions:
            consumer.assign([TopicPartition(topic, partition, 0)])
            while True:
                message = consumer.poll(TIMEOUT)
                assert message is not None
                if (error := message.error()) is None:
                    found.append(message)
                else:
                    assert error.code() == KafkaError._PARTITION_EOF
                    break
    return found


def values(servers: str, topic: str) -> list[dict[str, Any]]:
    """What the messages of a topic hold as JSON."""
    return [json.loads(message.value() or b"") for message in messages(servers, topic)]
