"""A store of objects knows what became of a create, uploads in parts, and tells nothing secret."""

import errno
import logging
import multiprocessing
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable
from urllib.parse import unquote
from urllib.request import urlopen

import pytest

from godwit.errors import ConfigError
from godwit.model.store_requests import StoreRequests
from godwit.storage import object_client
from godwit.storage.location import object_store, open_store
from godwit.storage.object_client import requests_made
from godwit.storage.object_store import PART, PIECE
from godwit.storage.probe import check_store
from godwit.storage.store import Store, StoreError, UnknownOutcomeError
from tests.support.object_gateway import KEY, SECRET, Act, Fault, Gateway, gateway
from tests.support.object_servers import BUCKET, ObjectServer
from tests.support.processes import forks

NAME = "log/1.json"
OBJECT = f"query/{NAME}"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails is tried again at once, and less often."""
    monkeypatch.setattr(object_client, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(object_client, "RETRIES", 3)


# -- create ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "acts",
    [
        [],
        [503],
        [429, 500, 503],
        ["cut"],
        ["lose"],  # it is there, and its writer was not told
        ["lose", 503, "cut"],
        [409],  # another create was under way, and has not stayed
        ["lose", 409],
    ],
)
def test_what_may_pass_does_not_fail_a_create(objects: Gateway, acts: list[Act]) -> None:
    objects.acts = acts.copy()
    objects.s3().create(NAME, b"mine")
    assert objects.objects == {OBJECT: b"mine"}


@pytest.mark.parametrize("acts", [[], [503], ["cut", 429], [409]])
def test_of_a_name_that_another_took_first_it_says_so(objects: Gateway, acts: list[Act]) -> None:
    objects.objects[OBJECT] = b"theirs"
    objects.acts = acts.copy()
    with pytest.raises(FileExistsError):
        objects.s3().create(NAME, b"mine")
    assert objects.objects == {OBJECT: b"theirs"}


def test_the_same_bytes_are_not_taken_for_its_own_if_no_answer_was_lost(objects: Gateway) -> None:
    store = objects.s3()
    store.create(NAME, b"same")
    with pytest.raises(FileExistsError):
        store.create(NAME, b"same")


@pytest.mark.parametrize("acts", [["lose", 403], ["cut"] * 9, [503] * 9, ["cut", 400]])
def test_an_outcome_that_nobody_can_tell_is_unknown(objects: Gateway, acts: list[Act]) -> None:
    objects.acts = acts.copy()
    with pytest.raises(UnknownOutcomeError, match="may be there nevertheless"):
        objects.s3().create(NAME, b"mine")


@pytest.mark.parametrize("acts", [[403], [401], [400], [501], [409] * 9])
def test_after_any_other_error_the_file_is_not_there(objects: Gateway, acts: list[Act]) -> None:
    objects.acts = acts.copy()
    with pytest.raises(StoreError) as caught:
        objects.s3().create(NAME, b"mine")
    assert not isinstance(caught.value, UnknownOutcomeError)
    assert objects.objects == {}


def test_a_server_that_is_not_there_has_created_nothing() -> None:
    with gateway() as gone:
        store = gone.s3()
    with pytest.raises(StoreError, match="cannot be reached; check the endpoint") as caught:
        store.create(NAME, b"mine")
    assert not isinstance(caught.value, UnknownOutcomeError)
    assert not caught.value.sent


# -- the requests ----------------------------------------------------------------------------------


def test_google_is_asked_to_create_only_what_has_no_generation(objects: Gateway) -> None:
    """No emulator of it honours the condition: so this is what we send it."""
    store = objects.gs()
    store.create(NAME, b"mine")
    with pytest.raises(FileExistsError):
        store.create(NAME, b"theirs")
    (method, path, headers), (_, _, again), (read, _, _) = objects.asked
    assert (method, unquote(path), read) == ("PUT", f"/bucket/{OBJECT}", "GET")
    assert headers["x-goog-if-generation-match"] == "0" == again["x-goog-if-generation-match"]
    assert objects.objects == {OBJECT: b"mine"}
    with store.write("state/1") as target:
        target.write(b"1")
    assert "x-goog-if-generation-match" not in objects.asked[-1][2]
    assert store.list_files("") == [NAME, "state/1"]
    check_store(store)


def test_s3_is_asked_to_create_only_what_does_not_match_anything(objects: Gateway) -> None:
    objects.s3().create(NAME, b"mine")
    ((method, path, headers),) = objects.asked
    assert (method, path, headers["if-none-match"]) == ("PUT", f"/bucket/{OBJECT}", "*")


def test_one_file_is_deleted_by_its_name(objects: Gateway) -> None:
    """Not all servers know how to delete several by one request."""
    store = objects.s3()
    store.create(NAME, b"mine")
    store.delete(NAME)
    assert objects.asked[-1][:2] == ("DELETE", f"/bucket/{OBJECT}")


def test_requests_are_counted_by_what_they_cost(objects: Gateway) -> None:
    store, before = objects.s3(), requests_made()
    store.create("a", b"1")
    store.replace("hint", b"1")
    with store.write("b") as target:
        target.write(b"1")
    assert requests_made() - before == StoreRequests(puts=3)
    store.read("a")
    store.exists("c")
    assert list(store.chunks("b")) == [b"1"]
    assert requests_made() - before == StoreRequests(puts=3, gets=3)
    store.list_files("")
    store.names("")
    store.delete("a")
    assert requests_made() - before == StoreRequests(puts=3, gets=3, lists=2, deletes=1)


def test_a_large_file_is_uploaded_in_parts_which_are_counted(
    object_server: Callable[[str], ObjectServer],
) -> None:
    store, before = object_server("moto").store(), requests_made()
    with store.write("large") as target:
        for _ in range(5):
            target.write(bytes(PART // 2))
    assert requests_made() - before == StoreRequests(puts=2 + 3)
    assert sum(map(len, store.chunks("large"))) == 5 * PART // 2
    assert requests_made() - before == StoreRequests(puts=5, gets=1 + 5 * PART // 2 // PIECE)


def test_an_upload_that_fails_leaves_no_parts(
    object_server: Callable[[str], ObjectServer],
) -> None:
    server = object_server("moto")
    store = server.store()

    def write() -> None:
        with store.write("large") as target:
            for _ in range(5):
                target.write(bytes(PART // 2))
            raise OSError("the rest cannot be read")

    with pytest.raises(OSError, match="the rest cannot be read"):
        write()
    with urlopen(f"{server.endpoint}/{BUCKET}?uploads") as uploads:
        assert store.address("large").removeprefix(f"s3://{BUCKET}/") not in uploads.read().decode()
    assert store.list_files("") == []


def test_a_buffer_that_is_used_again_is_written_as_it_was(objects: Gateway) -> None:
    buffer = bytearray(b"one ")
    with objects.s3().write("a") as target:
        target.write(buffer)
        buffer[:] = b"two!"
        target.write(buffer)
    assert objects.objects["query/a"] == b"one two!"


# -- errors ----------------------------------------------------------------------------------------


def _writes(store: Store) -> None:
    with store.write("a") as target:
        target.write(b"1")


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (403, r"access is denied \(403 Told\); use credentials that may read, write, list"),
        (503, r"the server went on answering 503.*; start again when it is well"),
        (400, r"the server answered 400 Told; check the endpoint and the bucket's name"),
        (301, r"the bucket is in another region; name it, by AWS_REGION or region="),
    ],
)
@pytest.mark.parametrize("ask", [lambda store: store.replace("a", b"1"), _writes])
def test_errors_name_the_object_and_the_next_step_and_nothing_secret(
    objects: Gateway,
    caplog: pytest.LogCaptureFixture,
    act: int,
    said: str,
    ask: Callable[[Store], None],
) -> None:
    caplog.set_level(logging.DEBUG)
    objects.acts = [act] * 9
    with pytest.raises(StoreError, match=f"^s3://bucket/query/a: {said}") as caught:
        ask(objects.s3())
    error = pickle.loads(pickle.dumps(caught.value))
    assert (str(error), error.errno) == (str(caught.value), caught.value.errno)
    assert error.errno == (errno.EACCES if act == 403 else errno.EIO)
    told = "".join(traceback.format_exception(caught.value)) + caplog.text
    assert SECRET not in told
    assert KEY not in told


def test_a_bucket_that_is_not_there_is_named(object_server: Callable[[str], ObjectServer]) -> None:
    server = object_server("moto")
    store = object_store("s3://nowhere/query", endpoint=server.endpoint, **server.options)
    for ask in (lambda: store.create("a", b"1"), lambda: store.read("a"), lambda: _writes(store)):
        with pytest.raises(FileNotFoundError, match=r"no such bucket; make it first: 's3://nowh"):
            ask()
    with pytest.raises(ConfigError, match=r"s3://nowhere/query: .*no such bucket; make it first"):
        check_store(store)


def test_credentials_that_are_wrong_are_refused_and_not_told(
    object_server: Callable[[str], ObjectServer],
) -> None:
    server = object_server("seaweed")
    options = {**server.options, "access_key_id": KEY, "secret_access_key": SECRET}
    store = object_store(f"s3://{BUCKET}/query", endpoint=server.endpoint, **options)
    with pytest.raises(StoreError, match=r"access is denied \(403 InvalidAccessKeyId\)") as caught:
        store.create("a", b"1")
    with pytest.raises(ConfigError, match=r"access is denied \(403\); use") as start:
        check_store(store)
    for error in (caught.value, start.value):
        assert SECRET not in "".join(traceback.format_exception(error))
        assert KEY not in "".join(traceback.format_exception(error))


def test_a_store_shows_no_option(objects: Gateway) -> None:
    store = objects.s3().within("godwit")
    for text in (str(store), repr(store), f"{store:}", store.address("a"), store.url("a")):
        assert SECRET not in text
        assert KEY not in text
    bucket = "Bucket(scheme='s3', name='bucket')"
    assert repr(store) == f"ObjectStore(bucket={bucket}, prefix='query/godwit')"
    assert store.url("a") == "s3a://bucket/query/godwit/a"


def test_a_process_that_was_forked_from_a_user_is_told_instead_of_waiting(
    objects: Gateway,
) -> None:
    store = objects.s3()
    store.create("a", b"1")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            store.read("a")
        except BaseException as error:
            os.write(write, f"{type(error).__name__}: {error}".encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        assert "ConfigError: s3://bucket: this process was forked" in answer.read()
    os.waitpid(child, 0)


def _read(store: Store, answer: "multiprocessing.Queue[bytes]") -> None:
    answer.put(store.read("a"))


def test_a_process_of_its_own_makes_a_client_of_its_own(objects: Gateway) -> None:
    store = objects.s3()
    store.create("a", b"1")
    context = forks()
    answer = context.Queue()
    process = context.Process(target=_read, args=(store, answer))
    process.start()
    assert answer.get(timeout=60) == b"1"
    process.join()


# -- locations -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("S3://bucket/a//b/", "s3://bucket/a/b"),
        ("gs://bucket/a b/ü", "gs://bucket/a b/ü"),
        ("az://container/a", "az://container/a"),
    ],
)
def test_a_url_names_a_bucket_and_a_prefix(url: str, address: str) -> None:
    store = open_store(url, to_write=True)
    assert str(store) == address
    assert store.local_path() is None
    assert open_store(store, to_write=True, durable=True) is store


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3a://bucket/q", "'s3a' does not qualify for a checkpoint; write s3://bucket/prefix"),
        ("s3n:bucket", "'s3n' does not qualify for a checkpoint; write s3://bucket/prefix"),
        ("abfss://c@a.dfs/q", "'abfss' does not qualify .*; write az://container/prefix"),
        ("wasbs://c/q", "'wasbs' does not qualify for a checkpoint; write az://container/prefix"),
        ("s3:/bucket/q", "names no bucket; write s3://bucket/prefix, as a str and not as a Path"),
        ("s3://", "names no bucket"),
        ("gs:///q", "names no bucket"),
        ("s3://bucket/run[1]", "which Spark takes for a pattern"),
    ],
)
def test_urls_that_cannot_be_are_refused(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        open_store(url)


def test_credentials_in_a_url_are_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError, match="holds no credentials; set them in the") as caught:
        open_store(f"s3://{KEY}:{SECRET}@bucket/query")
    assert KEY not in str(caught.value)
    assert SECRET not in str(caught.value)


def test_options_that_do_not_exist_are_named() -> None:
    with pytest.raises(ConfigError, match="there is no option 'endpint'; obstore's S3Config"):
        object_store("s3://bucket/query", endpint="http://127.0.0.1")
    with pytest.raises(ConfigError, match="name the storage account, by AZURE_STORAGE_ACCOUNT"):
        object_store("az://container/query")
    with pytest.raises(ConfigError, match="names no object store; write s3://bucket/prefix"):
        object_store("/data/query")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    monkeypatch.setitem(sys.modules, "obstore.exceptions", None)
    with pytest.raises(ConfigError, match=r"obstore.* is missing here; run pip install 'godwit\[c"):
        object_store("s3://a-bucket-of-its-own/query")


def test_the_environment_says_where_a_url_is(object_server: Callable[[str], ObjectServer]) -> None:
    server = object_server("moto")
    program = (
        "from godwit.storage.location import open_store\n"
        f"store = open_store('s3://{BUCKET}/by-environment')\n"
        "store.create('a', b'1')\n"
        "print(store.list_files(''))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **server.environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "['a']\n"


# -- the probe -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("ignores conditions", "ignores the condition that a new file does not exist yet"),
        ("reads late", "does not show a file that has just been written"),
        ("lists late", "does not list a file that has just been written"),
        ("keeps deleted", "still shows a file that has just been deleted"),
    ],
)
def test_a_store_that_does_not_keep_its_promises_is_refused(fault: Fault, said: str) -> None:
    with gateway(fault) as objects:
        with pytest.raises(ConfigError, match=f"^s3://bucket/query: this store {said}"):
            check_store(objects.s3())
        assert fault == "keeps deleted" or objects.objects == {}


def test_a_server_that_does_not_know_the_condition_is_refused(objects: Gateway) -> None:
    objects.acts = [501]
    with pytest.raises(ConfigError, match="this store ignores the condition"):
        check_store(objects.s3())


def test_the_probe_is_cheap(objects: Gateway) -> None:
    store, before = objects.s3(), requests_made()
    check_store(store)
    assert requests_made() - before == StoreRequests(puts=2, gets=6, lists=2, deletes=1)
    assert objects.objects == {}
