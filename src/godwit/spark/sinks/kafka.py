"""Outputs in a Kafka topic."""

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from godwit import faults
from godwit.errors import ConfigError
from godwit.log.history import History
from godwit.spark.sinks.arrow_sink import (
    ArrowSink,
    Delivered,
    Outputs,
    as_key,
    check_key,
    need,
)
from godwit.spark.sinks.sink import EPOCH, Sink, check_no_epoch
from godwit.spark.types import to_arrow
from godwit.state.output import OutputFiles
from godwit.storage.location import Location

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, Producer, TopicPartition

MESSAGES: Final = pa.schema(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
    }
)
TIMEOUT: Final = 60.0  # in seconds, for one thing that a broker is asked
START_TIMEOUT: Final = 5.0  # for markers at a start, which an epoch reads again
TAIL: Final = 100  # how many markers to look at first
MARKERS: Final = 0  # the partition that they are in


def kafka(
    topic: str,
    bootstrap_servers: str,
    *,
    key: str | Sequence[str] | None = None,
    transactional_id: str | None = None,
    marker_topic: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Sink:
    """A Kafka topic: an epoch is one transaction, which readers with `read_committed` see whole.

    A row becomes a JSON object with a field `epoch`, and the columns `key` become the message's
    key. An output with a column `value`, and perhaps `key` and `headers`, is sent as it is, like
    Spark does. `options` are those of librdkafka. Needs `pip install 'godwit[kafka]'`.

    >>> kafka("counts", "broker:9092", key="word", options={"sasl.password": "secret"})
    KafkaSink(topic='counts', bootstrap_servers='broker:9092', key=('word',), transactional_id=None)
    """
    markers = marker_topic or f"{topic}-godwit"
    return KafkaSink(
        topic, bootstrap_servers, as_key(key), transactional_id, markers, dict(options or {})
    )


class ProducerLostError(Exception):
    """A producer can do nothing more; a new one finds out what of the epoch is there."""


class _HiddenError(Exception):
    """There are markers behind an open transaction."""


@dataclass
class KafkaSink(ArrowSink):
    """A transaction holds messages and, in a topic of its own, a marker with the commit's id."""

    topic: str
    bootstrap_servers: str
    key: tuple[str, ...]
    transactional_id: str | None
    marker_topic: str = field(repr=False)
    options: dict[str, Any] = field(repr=False)
    clock: Callable[[], float] = field(default=monotonic, repr=False)
    _is_raw: bool = field(default=False, init=False, repr=False)  # rows are messages already
    _opened: "Producer | None" = field(default=None, init=False, repr=False)

    @property
    def guarantee(self) -> str:
        return (
            "exactly once for readers with read_committed: the messages of an epoch and a marker "
            "with the id of its commit are one transaction; messages of other queries are left "
            "as they are"
        )

    def prepare(self, schema: StructType, checkpoint: Location, *, to_make: bool) -> None:
        need("confluent_kafka.admin", "kafka")
        self._opened, self._is_raw = None, "value" in schema.names
        if self._is_raw:
            self._check_messages(to_arrow(schema))
        else:
            check_no_epoch(schema)
            check_key(self.key, to_arrow(schema))
        from confluent_kafka import KafkaException

        try:
            is_there = self._check_topics(to_make)
            query = History(checkpoint).query if is_there else None
            delivered = self._delivered(query, START_TIMEOUT) if query else None
        except _HiddenError:  # by a driver that was killed: the first epoch ends its transaction
            return
        except KafkaException as error:
            raise ConfigError(f"{self} cannot be used: {error.args[0].str()}") from error
        if delivered:
            delivered.check_start(checkpoint, str(self))

    def identity(self, spark: SparkSession) -> Hashable:
        from confluent_kafka.admin import AdminClient

        cluster = AdminClient(self._settings()).list_topics(self.topic, timeout=TIMEOUT).cluster_id
        return cluster or tuple(sorted(self.bootstrap_servers.split(","))), self.topic

    def deliver(self, epoch: int, rows: DataFrame, commit: str, count: int) -> None:
        super().deliver(epoch, rows if self._is_raw else self._messages(rows, epoch), commit, count)

    def deliver_files(self, epoch: int, files: OutputFiles, commit: str) -> bool:
        return self._is_raw and super().deliver_files(epoch, files, commit)

    def take(self, outputs: Outputs, commit: str) -> None:
        """Raises ProducerLostError if the broker has fenced its producer: another one has begun
        with the same id, as that of a driver that was taken over and wakes up."""
        from confluent_kafka import KafkaError, KafkaException

        try:
            self._take(outputs, commit)
        except _HiddenError as error:
            raise ConfigError(str(error)) from None
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            if cause.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED):
                raise ProducerLostError(
                    f"{self} has lost the transactional id {self._id(commit.partition('/')[0])}: "
                    "to an earlier driver of this query that still runs, to a query that names the "
                    "same, or because a transaction took longer than transaction.timeout.ms; end "
                    "that driver, name another transactional_id, or raise the timeout in options"
                ) from error
            if cause.fatal():
                raise ProducerLostError(f"{self} has lost its producer: {cause.str()}") from error
            raise

    def _take(self, outputs: Outputs, commit: str) -> None:
        query = commit.partition("/")[0]
        # From here on, an earlier producer of this id can commit nothing.
        producer = self._producer(query)
        delivered = self._delivered(query)
        if delivered and delivered.has(outputs.epoch, commit, str(self)):
            return
        if not outputs.count:
            return
        marker = {"query": query, "topic": self.topic, "epoch": outputs.epoch, "commit": commit}
        with self._transaction(producer):
            for message in _rows(outputs):
                _produce(producer, self.topic, **message)
            key, value = self._id(query).encode(), json.dumps(marker).encode()
            _produce(producer, self.marker_topic, key=key, value=value, partition=MARKERS)
            faults.reach("rows", "after", outputs.epoch)

    def __str__(self) -> str:
        return f"the Kafka topic {self.topic}"

    def _check_messages(self, columns: pa.Schema) -> None:
        """Refuse columns that no part of a message is made of."""
        if self.key:
            raise ConfigError(
                "the output has a column 'value', so it holds messages; call the column of their "
                "keys 'key', and leave out key= of gw.kafka"
            )
        texts = (pa.string(), pa.binary())
        for column in columns:
            if column.name not in MESSAGES.names:
                raise ConfigError(
                    f"the output has a column 'value', so it holds messages, and '{column.name}' "
                    "is no part of one: key, value, headers. Leave it out, or rename 'value' to "
                    "send rows as JSON"
                )
            if column.name != "headers" and column.type not in texts:
                raise ConfigError(
                    f"column '{column.name}' is of type {column.type}; a message has string or "
                    "binary there: cast it"
                )

    def _check_topics(self, to_make: bool) -> bool:
        """Refuse a topic that is missing, and tell whether that of markers is there, or make it."""
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient(self._settings())
        there = admin.list_topics(timeout=TIMEOUT).topics
        if self.topic not in there:
            raise ConfigError(f"{self} does not exist; create it, or name another one")
        if self.marker_topic not in there:
            if not to_make:
                return False
            new = NewTopic(self.marker_topic, 1, config={"cleanup.policy": "compact"})
            try:
                admin.create_topics([new], request_timeout=TIMEOUT)[self.marker_topic].result()
            except Exception as error:
                raise ConfigError(
                    f"the topic {self.marker_topic}, for markers of epochs, cannot be created "
                    f"({error}); create it with cleanup.policy=compact, or name another "
                    "marker_topic"
                ) from error
        return True

    def _messages(self, rows: DataFrame, epoch: int) -> DataFrame:
        """Rows as messages, of which Spark makes the JSON."""
        fields = [rows[_quoted(name)] for name in rows.columns]
        value = sf.to_json(sf.struct(*fields, sf.lit(epoch).cast("long").alias(EPOCH)))
        key = sf.lit(None)
        if len(self.key) == 1:
            key = rows[_quoted(self.key[0])]
        elif self.key:
            key = sf.to_json(sf.struct(*(rows[_quoted(name)] for name in self.key)))
        return rows.select(key.cast("string").alias("key"), value.alias("value"))

    def _producer(self, query: str) -> "Producer":
        from confluent_kafka import Producer

        if self._opened is None:
            producer = Producer(self._settings() | {"transactional.id": self._id(query)})
            producer.init_transactions(TIMEOUT)
            self._opened = producer
        return self._opened

    @contextmanager
    def _transaction(self, producer: "Producer") -> Iterator[None]:
        """A producer that fails is not used again: the next one ends what this one has begun."""
        try:
            producer.begin_transaction()
            yield
            producer.commit_transaction(TIMEOUT)
        except BaseException:
            self._opened = None
            raise

    def _delivered(self, query: str, timeout: float = TIMEOUT) -> Delivered | None:
        """The newest marker: it is looked for from the end, further and further back."""
        found = None
        tail = TAIL
        with closing(self._consumer("read_uncommitted")) as consumer:
            low, high = consumer.get_watermark_offsets(self._markers(), timeout=TIMEOUT)
        with closing(self._consumer("read_committed")) as consumer:
            while found is None:
                start = max(low, high - tail)
                for message in self._between(consumer, start, high, timeout):
                    if message.key() == self._id(query).encode():
                        found = json.loads(message.value() or b"")
                if start == low:
                    break
                tail *= 10
        if found is None:
            return None
        if found["query"] != query:
            raise ConfigError(
                f"the transactional id {self._id(query)} of {self} is that of another query, "
                f"{found['query']}; name another transactional_id"
            )
        if found.get("topic", self.topic) != self.topic:
            raise ConfigError(
                f"the transactional id {self._id(query)} of {self} is that of another sink, for "
                f"the topic {found['topic']}; name another transactional_id for one of them"
            )
        return Delivered(found["epoch"], found["commit"])

    def _between(
        self, consumer: "Consumer", start: int, end: int, timeout: float
    ) -> "Iterator[Message]":
        """Committed markers. An open transaction of another query hides those behind it, so this
        waits for its end."""
        from confluent_kafka import KafkaError, KafkaException

        if start == end:
            return
        consumer.assign([self._markers(start)])
        until = self.clock() + timeout
        while self.clock() < until:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                yield message
            elif error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            elif (message.offset() or 0) >= end:
                return
        raise _HiddenError(
            f"the markers in the topic {self.marker_topic} could not be read to their end within "
            f"{timeout:.0f} s; look for an open transaction, or name a marker_topic for each query"
        )

    def _consumer(self, isolation: str) -> "Consumer":
        from confluent_kafka import Consumer

        return Consumer(
            self._settings()
            | {
                "group.id": "godwit",  # which keeps no offsets
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "isolation.level": isolation,
            }
        )

    def _markers(self, offset: int = 0) -> "TopicPartition":
        from confluent_kafka import TopicPartition

        return TopicPartition(self.marker_topic, MARKERS, offset)

    def _id(self, query: str) -> str:
        return self.transactional_id or f"godwit-{query}-{self.topic}"

    def _settings(self) -> dict[str, Any]:
        return {**self.options, "bootstrap.servers": self.bootstrap_servers}


def check_ids(sinks: Iterable[Sink]) -> None:
    """Refuse two sinks with one transactional id: each would end the transactions of the other."""
    ids = Counter(
        (frozenset(sink.bootstrap_servers.replace(" ", "").split(",")), sink.transactional_id)
        for sink in sinks
        if isinstance(sink, KafkaSink) and sink.transactional_id
    )
    for (_, id), count in ids.items():
        if count > 1:
            raise ConfigError(
                f"{count} sinks have the transactional id {id}; name another transactional_id for "
                "each of them"
            )


def _rows(outputs: Outputs) -> Iterator[dict[str, Any]]:
    for batch in outputs.batches(MESSAGES):
        for message in batch.to_pylist():
            headers = message["headers"]
            if headers is not None:
                message["headers"] = [(header["key"], header["value"]) for header in headers]
            yield message


def _produce(producer: "Producer", topic: str, **message: Any) -> None:
    """Hand a message over, when there is room for it."""
    while True:
        try:
            producer.produce(topic, **message)
            return
        except BufferError:
            producer.poll(0.1)


def _quoted(name: str) -> str:
    return "`{}`".format(name.replace("`", "``"))
