"""Remote files: byte ranges, the cache, folders, errors without secrets, and servers that misbehave."""

import errno
import importlib
import json
import os
import pickle
import shutil
import socket
import sys
import threading
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import isoscope
from isoscope.cli.main import main
from isoscope.errors import DatabaseError, FileFormatError, NotFoundError, OutputError, ParameterError
from isoscope.stores import open_store, remote, write_store
from isoscope.stores.databases import base
from isoscope.stores.databases.address import parse_remote, redact_source_name
from tests.services import require
from tests.stores.http_server import serve_files

fsspec = require("fsspec")
X = np.random.default_rng(0).standard_normal((600, 8)).astype(np.float32)
TEXT = [f"text {i}" for i in range(len(X))]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(remote.CACHE_FOLDER, str(tmp_path / "cache"))
    monkeypatch.setattr(base, "PAUSES", (0.0,))
    yield tmp_path / "cache"
    for file in remote._held.values():
        file.close()
    remote._held.clear()


@pytest.fixture
def server():
    require("aiohttp")
    with serve_files() as found:
        yield found


@pytest.fixture
def memory():
    files = fsspec.filesystem("memory")
    yield files
    files.store.clear()
    files.pseudo_dirs[:] = [""]


@pytest.fixture(scope="module")
def formats(tmp_path_factory):
    """The same vectors and texts in each format."""
    folder = tmp_path_factory.mktemp("formats")
    store = open_store(X, text=TEXT, ids=np.arange(len(X)))
    for ending in ("parquet", "arrow", "npy", "safetensors"):
        write_store(store, folder / f"x.{ending}")
    table = pq.read_table(folder / "x.parquet")
    pq.write_table(table, folder / "groups.parquet", row_group_size=100)
    with pa.ipc.new_stream(folder / "stream.arrow", table.schema) as writer:
        writer.write_table(table)
    with (folder / "x.jsonl").open("w") as file:
        file.writelines(f'{{"id": {i}, "text": "text {i}", "embedding": {row.tolist()}}}\n' for i, row in enumerate(X))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def assert_same(store, text=True):
    np.testing.assert_allclose(np.concatenate([*store]), X, rtol=1e-6)
    np.testing.assert_allclose(store.take([599, 0, 7]), X[[599, 0, 7]], rtol=1e-6)
    if text:
        assert store.text.tolist() == TEXT


@pytest.mark.parametrize("name", ["x.parquet", "groups.parquet", "x.arrow", "stream.arrow", "x.npy", "x.jsonl"])
def test_each_format_is_read_from_memory_and_over_http(name, formats, memory, server):
    files, address = server
    files.files[f"/d/{name}"] = formats[name]
    memory.pipe(f"/d/{name}", formats[name])
    for place in (f"memory://d/{name}", f"{address}/d/{name}"):
        store = open_store(place)
        assert store.name == place
        assert_same(store, text=name != "x.npy")


def test_parquet_reads_only_the_needed_row_group(formats, server, cache):
    files, address = server
    files.files["/groups.parquet"] = formats["groups.parquet"]
    store = open_store(f"{address}/groups.parquet")
    files.sent = 0
    assert np.array_equal(store.take([5]), X[[5]])
    assert 0 < files.sent < len(formats["groups.parquet"]) / 4
    assert not cache.exists()


def test_arrow_file_is_counted_without_reading_the_vectors(formats, server):
    files, address = server
    files.files["/x.arrow"] = formats["x.arrow"]
    store = open_store(f"{address}/x.arrow")
    assert len(store) == len(X)
    assert files.sent < len(formats["x.arrow"]) - X.nbytes / 2


@pytest.mark.parametrize("name", ["groups.parquet", "x.arrow", "x.npy"])
def test_server_without_ranges(name, formats, server):
    files, address = server
    files.ranges = False
    files.files[f"/{name}"] = formats[name]
    assert_same(open_store(f"{address}/{name}"), text=name != "x.npy")


def test_server_without_length(formats, server):
    files, address = server
    files.ranges = files.length = files.etag = False
    files.files["/x.npy"] = formats["x.npy"]
    assert_same(open_store(f"{address}/x.npy"), text=False)


def test_file_is_downloaded_once_and_again_when_it_changes(formats, server):
    files, address = server
    files.files["/x.npy"] = formats["x.npy"]
    assert_same(open_store(f"{address}/x.npy"), text=False)
    first = files.sent
    assert first >= len(formats["x.npy"])
    assert_same(open_store(f"{address}/x.npy"), text=False)
    assert files.sent == first
    files.files["/x.npy"] = formats["x.npy"][:-32] + bytes(32)
    assert not open_store(f"{address}/x.npy").take([599]).any()


def test_cache_is_bounded(formats, server, cache, monkeypatch):
    files, address = server
    size = len(formats["x.npy"])
    monkeypatch.setenv(remote.CACHE_SIZE, str(int(2.5 * size)))
    for i in range(4):
        files.files[f"/{i}.npy"] = formats["x.npy"]
        open_store(f"{address}/{i}.npy")
        if i != 2:  # another process keeps using the third file
            for path in [path for path in remote._held if path.name == f"{i}.npy"]:
                remote._held.pop(path).close()
        newest = max(cache.glob("*/*"), key=lambda path: path.name)
        os.utime(newest, (i, i))
    assert sorted(path.name for path in cache.glob("*/*")) == ["2.npy", "3.npy"]
    monkeypatch.setenv(remote.CACHE_SIZE, "1000")
    files.files["/5.npy"] = formats["x.npy"]
    with pytest.raises(OutputError, match=r"limited to.*ISOSCOPE_CACHE_SIZE.*Parquet"):
        open_store(f"{address}/5.npy")
    assert len([*cache.glob("*/*")]) == 2


def test_interrupted_download_is_resumed(formats, server, cache, monkeypatch):
    files, address = server
    monkeypatch.setattr(remote, "_BLOCK_BYTES", 4096)
    files.files["/x.npy"] = formats["x.npy"]
    real, asked = remote.RemoteFile.read, []

    def read(self, start, stop):
        asked.append(start)
        if start >= 8192 and len(asked) < 5:
            files.status["/x.npy"] = 503
        return real(self, start, stop)

    monkeypatch.setattr(remote.RemoteFile, "read", read)
    with pytest.raises(DatabaseError, match=r"connection failed.*503.*kept: rerun the same command") as caught:
        open_store(f"{address}/x.npy")
    assert "\n" not in str(caught.value)
    assert [path.stat().st_size for path in cache.glob("*/.part")] == [8192]
    files.status.clear()
    asked[:] = [-1] * 5
    assert_same(open_store(f"{address}/x.npy"), text=False)
    assert min(asked[5:]) == 8192


def test_server_that_dies_in_the_middle(formats, server, cache):
    files, address = server
    files.files["/x.npy"], files.files["/groups.parquet"] = formats["x.npy"], formats["groups.parquet"]
    store = open_store(f"{address}/groups.parquet")
    files.cut = 1000
    for use in (lambda: [*store], lambda: open_store(f"{address}/x.npy")):
        with pytest.raises(DatabaseError, match="connection failed") as caught:
            use()
        assert "\n" not in str(caught.value)
    files.ranges = False
    with pytest.raises(DatabaseError, match=r"connection failed|bytes"):
        open_store(f"{address}/x.npy")
    assert not [path for path in cache.glob("*/*") if path.name != ".part"]


def test_lost_connection_is_repeated(formats, server):
    files, address = server
    files.files["/groups.parquet"] = formats["groups.parquet"]
    store = open_store(f"{address}/groups.parquet")
    files.cut, files.cuts = 1000, 1
    assert_same(store)
    assert files.cuts == 0


def test_server_that_does_not_answer(formats, server, monkeypatch):
    files, address = server
    monkeypatch.setattr(remote, "_READ_SECONDS", 0.2)
    remote._filesystem.cache_clear()
    end = threading.Event()
    monkeypatch.setattr(files, "handle", lambda request: end.wait(600))
    try:
        with pytest.raises(DatabaseError, match="did not answer within"):
            open_store(f"{address}/x.npy")
    finally:
        end.set()
        remote._filesystem.cache_clear()


def test_disk_full(formats, server, cache, monkeypatch):
    files, address = server
    files.files["/x.npy"] = formats["x.npy"]
    usage = shutil.disk_usage(".")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
        with pytest.raises(OutputError, match=r"0MB are free.*kept.*ISOSCOPE_CACHE"):
            open_store(f"{address}/x.npy")

    def full(self, start):
        yield self.read(start, start + 1024)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(remote.RemoteFile, "_blocks", full)
        with pytest.raises(OutputError, match=r"No space left.*kept.*free some space"):
            open_store(f"{address}/x.npy")
    assert_same(open_store(f"{address}/x.npy"), text=False)


def test_changed_file_is_reported(formats, server):
    files, address = server
    files.files["/groups.parquet"] = formats["groups.parquet"]
    store = open_store(f"{address}/groups.parquet")
    files.files["/groups.parquet"] = formats["x.parquet"]
    with pytest.raises(FileFormatError, match="changed while it was being read"):
        store.take([1])


def test_missing_and_forbidden_files(server):
    files, address = server
    files.status["/private.npy"] = 403
    with pytest.raises(NotFoundError, match=r"none\.npy does not exist"):
        open_store(f"{address}/none.npy")
    with pytest.raises(DatabaseError, match=r"access denied.*403"):
        open_store(f"{address}/private.npy")
    for place in (f"{address}/*.npy", f"{address}/folder/"):
        with pytest.raises(NotFoundError, match="cannot list folders"):
            open_store(place)


@pytest.mark.parametrize("target", ["file:///etc/passwd", "http://example.com/x.npy", "ftp://127.0.0.1/x.npy"])
def test_redirect_elsewhere_is_refused(target, server):
    files, address = server
    files.redirects["/x.npy"] = target
    with pytest.raises(DatabaseError, match=r"redirects to a \w+:// address, which is refused"):
        open_store(f"{address}/x.npy")


def test_redirect_on_the_same_machine_is_followed(formats, server):
    files, address = server
    files.files["/real.npy"] = formats["x.npy"]
    files.redirects["/x.npy"] = "/real.npy"
    assert_same(open_store(f"{address}/x.npy"), text=False)


def test_folders_and_globs(formats, memory, tmp_path):
    for i in (10, 9):
        memory.pipe(f"/shards/part-{i}.parquet", formats["x.parquet"])
    memory.pipe("/shards/notes.txt", b"not a shard")
    for place in ("memory://shards", "memory://shards/", "memory://shards/part-*.parquet"):
        store = open_store(place)
        assert len(store) == 2 * len(X)
        assert np.array_equal(store.take([600, 1199]), X[[0, 599]])
        assert [file.name for file in store.files] == ["part-9.parquet", "part-10.parquet"]
    with pytest.raises(NotFoundError, match="matches no file"):
        open_store("memory://shards/*.npy")
    with pytest.raises(NotFoundError, match="does not exist"):
        open_store("memory://shards/none.parquet")
    memory.pipe("/empty/readme.md", b"x")
    with pytest.raises(NotFoundError, match="folder without vectors"):
        open_store("memory://empty")
    memory.pipe("/words/words.txt", b"a\nb\n")
    np.save(tmp_path / "v.npy", np.eye(2))
    memory.pipe("/words/vectors.npy", (tmp_path / "v.npy").read_bytes())
    assert open_store("memory://words").text.tolist() == ["a", "b"]


def test_empty_and_damaged_files(memory, formats):
    memory.pipe("/empty.parquet", b"")
    with pytest.raises(isoscope.InputError, match="is empty"):
        open_store("memory://empty.parquet")
    memory.pipe("/cut.parquet", formats["x.parquet"][:-100])
    with pytest.raises(FileFormatError, match=r"memory://cut\.parquet cannot be read"):
        open_store("memory://cut.parquet")


def test_store_is_sent_to_another_process(formats, memory):
    memory.pipe("/x.parquet", formats["x.parquet"])
    memory.pipe("/x.npy", formats["x.npy"])
    for name in ("x.parquet", "x.npy"):
        assert_same(pickle.loads(pickle.dumps(open_store(f"memory://{name}"))), text=name == "x.parquet")


SECRETS = ("s3cr3t-password", "s3cr3t-signature", "s3cr3t-odd")


def test_no_secret_in_messages_pages_and_json(formats, server, tmp_path, capsys):
    files, address = server
    files.files["/x.parquet"] = formats["x.parquet"]
    host = address.removeprefix("http://")
    query = "X-Amz-Signature=s3cr3t-signature&odd=s3cr3t-odd"
    source = f"http://me:s3cr3t-password@{host}/x.parquet?{query}"
    page, result = tmp_path / "page.html", tmp_path / "audit.json"
    assert main(["audit", source, "--html", str(page), "--json", str(result)]) == 0
    assert files.requests[0][1] == f"/x.parquet?{query}"
    shown = page.read_text() + result.read_text() + "".join(capsys.readouterr())
    assert f"{address}/x.parquet" in shown
    assert main(["audit", source.replace("x.parquet", "none.parquet")]) == 2
    files.status["/x.parquet"] = 401
    assert main(["audit", source]) == 2
    assert main(["convert", str(tmp_path / "none.npy"), source]) == 2
    shown += "".join(capsys.readouterr()) + redact_source_name(source) + repr(parse_remote(source))
    assert not [secret for secret in SECRETS if secret in shown]


def test_commands_read_remote_files(formats, server, tmp_path, capsys):
    files, address = server
    files.files["/x.parquet"] = formats["x.parquet"]
    out = tmp_path / "out.npy"
    assert main(["convert", f"{address}/x.parquet", str(out)]) == 0
    assert np.array_equal(np.load(out), X)
    repair = isoscope.Center().fit(f"{address}/x.parquet")
    for _ in range(2):  # the second run finds that all parts are written
        isoscope.repair_store(f"{address}/x.parquet", repair, tmp_path / "folder")
    assert np.allclose(np.concatenate([*open_store(tmp_path / "folder")]), X - X.mean(0), atol=1e-5)


@pytest.mark.parametrize("place", ["s3://b/x.parquet", "gs://b/x", "hf://datasets/a/b/x", "https://h/x.npy"])
def test_remote_addresses_are_not_written(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ParameterError, match="does not write: write to a file on this machine, and upload"):
        write_store(X, place)
    assert not [*Path().iterdir()]


@pytest.mark.parametrize(
    ("place", "match"),
    [
        ("s3:/bucket/x", "need s3://bucket"),
        ("s3://", "need s3://bucket"),
        ("https://", "need https://host"),
        ("https://[::1", "need https://host"),
        ("http://example.com/x.npy", "not encrypted"),
        ("s3://key:s3cr3t@bucket/x", "environment variables"),
    ],
)
def test_mistyped_addresses(place, match):
    with pytest.raises(ParameterError, match=match) as caught:
        open_store(place)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    ("place", "package", "extra"),
    [("s3://b/x", "s3fs", "s3"), ("gs://b/x", "gcsfs", "gs"), ("hf://datasets/a/b", "huggingface_hub", "hf")],
)
def test_missing_extra_is_named(place, package, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    remote._filesystem.cache_clear()
    with pytest.raises(isoscope.MissingExtra, match=rf'pip install "isoscope\[{extra}\]"'):
        open_store(place)


@pytest.fixture(scope="module")
def s3_bucket():
    """An S3 server in this process, with an empty bucket."""
    server = require("moto.server")
    require("s3fs")
    with pytest.MonkeyPatch.context() as patch:
        running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        running.start()
        patch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:{1}".format(*running.get_host_and_port()))
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t-password")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        remote._filesystem.cache_clear()
        files = remote._filesystem("s3")
        files.mkdir("bucket")
        yield files
        running.stop()
    remote._filesystem.cache_clear()


@pytest.fixture(scope="module")
def gs_bucket():
    """A server of Google Cloud Storage in this process, with an empty bucket.

    gcsfs first asks for the kind of a bucket over gRPC, which this server does not offer. After a minute without an
    answer, it falls back to its plain file system, which the tests therefore use from the start.
    """
    emulator, gcsfs = require("gcp_storage_emulator.server"), require("gcsfs.core")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
        fsspec.register_implementation("gs", gcsfs.GCSFileSystem, clobber=True)
        running = emulator.create_server("127.0.0.1", port, in_memory=True, default_bucket="bucket")
        with running:
            remote._filesystem.cache_clear()
            yield remote._filesystem("gs")
    fsspec.register_implementation("gs", importlib.import_module("gcsfs").GCSFileSystem, clobber=True)
    remote._filesystem.cache_clear()


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_object_store(scheme, request, formats):
    files = request.getfixturevalue(f"{scheme}_bucket")
    for name in ("x.parquet", "x.npy", "groups.parquet"):
        files.pipe(f"bucket/{name}", formats[name])
    for i in range(2):
        files.pipe(f"bucket/shards/{i}.parquet", formats["x.parquet"])
    for name in ("x.parquet", "x.npy", "groups.parquet"):
        assert_same(open_store(f"{scheme}://bucket/{name}"), text=name != "x.npy")
    for place in (f"{scheme}://bucket/shards", f"{scheme}://bucket/shards/*.parquet"):
        assert np.array_equal(open_store(place).take([600, 1199]), X[[0, 599]])
    store = open_store(f"{scheme}://bucket/x.parquet")
    files.pipe("bucket/x.parquet", formats["groups.parquet"])
    with pytest.raises(FileFormatError, match="changed while it was being read"):
        store.take([0])
    with pytest.raises(NotFoundError, match=rf"{scheme}://bucket/none\.npy does not exist"):
        open_store(f"{scheme}://bucket/none.npy")


@pytest.fixture
def hub(server, monkeypatch):
    """Hugging Face's API for one dataset, on the loopback interface."""
    hub = require("huggingface_hub")
    files, address = server
    commit = "0" * 40
    real = files.handle

    def handle(request):
        path = unquote(urlsplit(request.path).path)
        data = {name.removeprefix("/own/"): body for name, body in files.files.items() if name.startswith("/own/")}
        if path.startswith("/api/datasets/me/docs/revision/") or path == "/api/datasets/me/docs":
            answer = {"id": "me/docs", "sha": commit, "private": False, "siblings": [], "tags": [], "downloads": 0}
        elif path.startswith("/api/datasets/me/docs/tree/"):
            below = path.partition("/tree/")[2].partition("/")[2]
            inside = [name for name in data if name.rpartition("/")[0] == below]
            folders = {name.partition("/")[0] for name in data if "/" in name} if not below else set()
            answer = [
                {"type": "file", "path": name, "size": len(data[name]), "oid": f"{hash(data[name]):x}"}
                for name in inside
            ] + [{"type": "directory", "path": name, "oid": "0", "size": 0} for name in folders]
            if not answer:
                request.send_response(404)
                request.send_header("X-Error-Code", "EntryNotFound")
                request.send_header("Content-Length", "0")
                request.end_headers()
                return
        elif path.startswith("/datasets/me/docs/resolve/"):
            request.path = "/own/" + path.partition("/resolve/")[2].partition("/")[2]
            return real(request)
        else:
            return real(request)
        body = json.dumps(answer).encode()
        request.send_response(200)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(body)

    monkeypatch.setattr(files, "handle", handle)
    monkeypatch.setitem(remote._filesystem.__wrapped__.__globals__, "_filesystem", lambda scheme: system)
    system = hub.HfFileSystem(endpoint=address, token="s3cr3t-token", skip_instance_cache=True)
    return files


def test_hugging_face(hub, formats):
    hub.files["/own/x.parquet"] = formats["groups.parquet"]
    hub.files["/own/data/0.parquet"] = hub.files["/own/data/1.parquet"] = formats["x.parquet"]
    store = open_store("hf://datasets/me/docs/x.parquet")
    hub.sent = 0
    assert np.array_equal(store.take([5]), X[[5]])
    assert hub.sent < len(formats["groups.parquet"]) / 4
    for place in ("hf://datasets/me/docs/data", "hf://datasets/me/docs/data/*.parquet"):
        assert np.array_equal(open_store(place).take([600, 1199]), X[[0, 599]])
    with pytest.raises(NotFoundError, match=r"none\.parquet does not exist") as caught:
        open_store("hf://datasets/me/docs/data/none.parquet")
    assert "s3cr3t" not in str(caught.value)


def test_pages_show_commands_that_read_the_address(formats, memory, tmp_path):
    memory.pipe("/docs/0.parquet", formats["x.parquet"])
    page = tmp_path / "page.html"
    isoscope.audit("memory://docs", sample=100).to_html(page)
    assert "isoscope audit memory://docs" in page.read_text()
