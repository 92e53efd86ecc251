"""A Kafka cluster for tests: librdkafka's own, in this process, over TCP.

It has topics, transactions and their commits. It fences no producer, it shows aborted messages to
readers of committed ones, and it makes no topics on request: asking for one makes it.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

import godwit as gw
from godwit.spark.sinks.sink import Sink

TIMEOUT = 30.0


@contextmanager
def cluster() -> Iterator[str]:
    """The bootstrap servers of a cluster with one broker."""
    host = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "unused", "log_level": 0})
    brokers = host.list_topics(timeout=TIMEOUT).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)


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
