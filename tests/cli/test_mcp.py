"""`isoscope mcp` as a client sees it: a real process, called by the client of the MCP SDK."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import isoscope
from isoscope.cli.access import Access
from isoscope.cli.main import _parser, main
from isoscope.cli.mcp_tools import COMMANDS, INPUTS, MAX_CHARACTERS, OUTPUTS, ToolCall, ToolError, list_tools
from isoscope.cli.session import written_files
from isoscope.errors import OutputError, ParameterError

pytest.importorskip("mcp", reason="the MCP SDK is not installed: pip install isoscope[mcp]")
anyio = pytest.importorskip("anyio")
from anyio.from_thread import start_blocking_portal  # noqa: E402
from mcp import Client, StdioServerParameters, stdio_client  # noqa: E402

SOURCE_FOLDER = str(Path(isoscope.__file__).parents[1])


def fill(folder: Path) -> Path:
    """Write two spaces, one of them rotated, labels and a repair; and files outside the folder."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 6)).astype(np.float32) + np.repeat(3 * np.eye(6, dtype=np.float32)[:3], 40, axis=0)
    folder.mkdir()
    np.save(folder / "a.npy", X)
    np.save(folder / "b.npy", X @ np.linalg.qr(rng.standard_normal((6, 6)))[0].astype(np.float32))
    np.save(folder / "labels.npy", np.repeat(np.arange(3), 40))
    np.save(folder.parent / "outside.npy", X)
    (folder / "link.npy").symlink_to(folder.parent / "outside.npy")
    (folder / "shards").mkdir()
    np.save(folder / "shards" / "0.npy", X)
    (folder / "shards" / "1.npy").symlink_to(folder.parent / "outside.npy")
    return folder


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([SOURCE_FOLDER, *sys.path])}


class Session:
    """A server process and a client connected to it, for tests that are not asynchronous."""

    def __init__(self, root: Path, *options: str) -> None:
        self.root = root
        words = ["-m", "isoscope", "mcp", "--root", str(root), *options]
        server = StdioServerParameters(command=sys.executable, args=words, env=environment(), cwd=str(root.parent))
        self.client = Client(stdio_client(server))

    def __enter__(self) -> Session:
        self._portal = start_blocking_portal()
        self.portal = self._portal.__enter__()
        self._running = self.portal.wrap_async_context_manager(self.client)
        self._running.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._running.__exit__(*error)
        self._portal.__exit__(*error)

    def call(self, tool: str, **arguments):
        return self.portal.call(lambda: self.client.call_tool(tool, arguments))

    def answer(self, tool: str, **arguments):
        """Return the structured content of a call that succeeds."""
        result = self.call(tool, **arguments)
        assert not result.is_error, result.content[0].text
        return result.structured_content

    def error(self, tool: str, **arguments) -> str:
        """Return the message of a call that fails."""
        result = self.call(tool, **arguments)
        assert result.is_error
        (content,) = result.content
        assert "\n" not in content.text
        return content.text


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """A server without permission to write."""
    with Session(fill(tmp_path_factory.mktemp("reader") / "root")) as session:
        yield session


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    """A server that may write and read databases."""
    root = fill(tmp_path_factory.mktemp("writer") / "root")
    with Session(root, "--allow-write", "--allow-remote") as session:
        yield session


# the list of tools


def test_every_tool_and_parameter_is_described(reader):
    tools = {tool.name: tool for tool in reader.portal.call(reader.client.list_tools).tools}
    assert list(tools) == list(COMMANDS)
    for tool in tools.values():
        assert len(tool.description) > 30
        for schema in (tool.input_schema, tool.output_schema):
            for name, value in schema["properties"].items():
                assert len(value.get("description", "")) > 10, (tool.name, name)
        assert tool.input_schema["required"]
        assert not tool.input_schema["additionalProperties"]


def test_every_text_argument_is_known_to_be_a_file_or_a_plain_value():
    """A new option that names a file must be checked; this test fails until the option is added to a list."""
    plain = {"by", "columns", "measure", "precision", "dimensions", "max_memory", "method", "components", "clusters"}
    plain |= {"clusterer", "axes", "shrinkage"}
    for tool in list_tools().values():
        for argument in tool.arguments:
            kind = argument.schema.get("items", argument.schema)
            if kind["type"] == "string" and "enum" not in kind:
                assert argument.name in INPUTS | OUTPUTS | plain, (tool.name, argument.name)
    assert {tool.name for tool in list_tools().values() if tool.writes} == {"fit", "apply"}


def test_the_schemas_are_resources(reader):
    resources = reader.portal.call(reader.client.list_resources).resources
    assert {resource.name for resource in resources} >= {"audit-1", "advice-2", "same-1"}
    (content,) = reader.portal.call(reader.client.read_resource, "isoscope://schemas/audit-1").contents
    assert json.loads(content.text)["title"] == "isoscope.audit/1"
    with pytest.raises(Exception, match="no such resource"):
        reader.portal.call(reader.client.read_resource, "isoscope://schemas/../json")


# results


CALLS = {
    "audit": ({"sources": ["a.npy"]}, "isoscope.audit/1", "isoscope advise a.npy"),
    "audit several": ({"sources": ["a.npy", "b.npy"]}, "isoscope.comparison/1", "isoscope same a.npy b.npy"),
    "advise": (
        {"source": "a.npy", "labels": "labels.npy", "measure": "knn", "folds": 2},
        "isoscope.advice/2",
        "isoscope threshold a.npy --labels labels.npy",
    ),
    "similarity": ({"source": "a.npy", "cosines": [0.8, -0.5]}, "isoscope.similarity/1", "isoscope threshold a.npy"),
    "threshold": ({"source": "a.npy", "false_matches": 0.05}, "isoscope.threshold/1", "isoscope similarity a.npy 0."),
    "same": ({"sources": ["a.npy", "b.npy"], "pair": "rows"}, "isoscope.same/1", "isoscope audit a.npy b.npy"),
    "compress": ({"source": "a.npy", "precision": "float16"}, "isoscope.compress/1", "isoscope compress a.npy"),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_tool_returns_the_json_of_its_command(reader, case, capsys):
    given, schema, following = CALLS[case]
    tool = case.split()[0]
    answer = reader.answer(tool, **given)
    assert answer["result"]["schema"] == schema
    assert all(answer["summary"][name] for name in ("found", "basis", "limits"))
    assert answer["next"].startswith(following)
    words = list_tools()[tool].to_command_line({**given}, Access(Path("/")))
    folder = os.getcwd()
    os.chdir(reader.root)
    try:
        code = main(words)
    finally:
        os.chdir(folder)
    expected = json.loads(capsys.readouterr().out)
    assert answer["exit_code"] == code
    assert answer["result"].keys() == expected.keys()
    if not any("shortened" in message for message in answer["messages"]):
        assert answer["result"] == expected


def test_the_text_contains_the_sentences_the_command_and_the_json(reader):
    result = reader.call("same", sources=["a.npy", "a.npy"], pair="rows")
    *lines, content = result.content[0].text.splitlines()
    assert json.loads(content) == result.structured_content["result"]
    assert lines[:3] == list(result.structured_content["summary"].values())
    assert lines[-1] == "Next: isoscope canary a.npy --output canary.parquet"
    assert len(result.content[0].text) < MAX_CHARACTERS + 2_000


def test_a_long_result_is_shortened(reader):
    answer = reader.answer("audit", sources=["a.npy"], top=50)
    assert len(json.dumps(answer["result"], ensure_ascii=False, separators=(",", ":"))) <= MAX_CHARACTERS
    assert any("--json FILE" in message for message in answer["messages"])
    assert answer["result"]["findings"]


def test_fit_and_apply_write_below_the_root(writer):
    fitted = writer.answer("fit", method="center", source="a.npy", output="repair")
    assert fitted["result"]["source"]["rows"] == 120
    assert fitted["next"] == "isoscope apply repair a.npy --output repaired.parquet"
    applied = writer.answer("apply", folder="repair", source="a.npy", output="c.npy")
    assert applied["result"]["rows"] == 120
    assert np.abs(np.load(writer.root / "c.npy").mean(axis=0)).max() < 1e-5
    assert applied["next"] == "isoscope audit a.npy c.npy"


def test_gate_on_a_baseline(writer):
    audit = writer.answer("audit", sources=["a.npy"], fail_on="look")
    assert audit["exit_code"] == 1
    assert any("fail_on" in message for message in audit["messages"])


# permissions


@pytest.mark.parametrize(
    "source",
    ["../outside.npy", "link.npy", "shards", "*.npy", "shards/../../outside.npy", "../*.npy", "~/x.npy", "/etc/passwd"],
)
def test_nothing_outside_the_root_is_read(reader, source):
    assert "outside the root" in reader.error("audit", sources=[source])
    assert "outside the root" in reader.error("same", sources=["a.npy", source])


@pytest.mark.parametrize("argument", ["labels", "text", "baseline", "queries"])
def test_no_other_argument_reads_outside_the_root(reader, argument):
    assert "outside the root" in reader.error("audit", **{"sources": ["a.npy"], argument: "../outside.npy"})


def test_an_absolute_path_below_the_root_is_read(reader):
    answer = reader.answer("similarity", source=str(reader.root / "a.npy"), cosines=[0.5])
    assert answer["result"]["of"] == {"source": "a.npy"}


@pytest.mark.parametrize(
    "address",
    [
        "postgres://me:hunter22@db.example/x?table=docs",
        "postgresql://me:hunter22@db.example/x?table=docs",
        "qdrant:../library#docs?api_key=hunter22",
        "https://me:hunter22@host/x.npy",
        "file:///etc/hunter22",
    ],
)
def test_databases_and_urls_need_permission(reader, address):
    message = reader.error("audit", sources=[address])
    assert "--allow-remote" in message
    assert "hunter22" not in message


def test_permitted_addresses_show_no_secret_and_stay_below_the_root(writer):
    message = writer.error("audit", sources=["postgresql://me:hunter22@127.0.0.1:1/x?table=docs"])
    assert "hunter22" not in message
    assert "127.0.0.1" in message
    assert "outside the root" in writer.error("audit", sources=["lancedb:../library#docs"])
    assert "file:" in writer.error("audit", sources=["file:///etc/passwd"])


def test_standard_input_is_not_a_source(reader):
    assert "standard input" in reader.error("audit", sources=["-"])


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("fit", {"method": "center", "source": "a.npy", "output": "new"}),
        ("apply", {"folder": "repair", "source": "a.npy", "output": "new.npy"}),
        ("audit", {"sources": ["a.npy"], "html": "new.html"}),
        ("audit", {"sources": ["a.npy"], "rows": "new.csv"}),
        ("advise", {"source": "a.npy", "output": "new"}),
        ("compress", {"source": "a.npy", "output": "new"}),
    ],
)
def test_nothing_is_written_without_permission(reader, tool, arguments):
    before = sorted(reader.root.rglob("*"))
    assert "--allow-write" in reader.error(tool, **arguments)
    assert sorted(reader.root.rglob("*")) == before


def test_nothing_is_written_outside_the_root(writer):
    for output in ("../new.html", str(writer.root.parent / "new.html")):
        assert "outside the root" in writer.error("audit", sources=["a.npy"], html=output)
    assert not (writer.root.parent / "new.html").exists()


def test_access_checks_are_those_of_the_error_classes(tmp_path):
    with pytest.raises(OutputError):
        Access(tmp_path).check_output("x.npy")
    with pytest.raises(ParameterError):
        Access(tmp_path).check_input(str(tmp_path.parent / "x.npy"))
    Access(tmp_path).check_input(str(tmp_path / "x.npy"))


# wrong calls


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("audit", {}, "sources"),
        ("audit", {"sources": "a.npy"}, "list"),
        ("audit", {"sources": []}, "empty"),
        ("audit", {"sources": ["a.npy"], "depth": 3}, "depth"),
        ("audit", {"sources": ["a.npy"], "sample": "many"}, "integer"),
        ("audit", {"sources": ["a.npy"], "sample": True}, "integer"),
        ("audit", {"sources": ["a.npy"], "fail_on": "never"}, "look"),
        ("audit", {"sources": ["a.npy"], "fail_on": "worse"}, "baseline"),
        ("audit", {"sources": ["--debug"]}, "--debug does not exist"),
        ("audit", {"sources": ["missing.npy"]}, "missing.npy"),
        ("audit", {"sources": ["a\0.npy"]}, "null character"),
        ("similarity", {"source": "a.npy", "cosines": [3]}, "-1 to 1"),
        ("same", {"sources": ["a.npy"]}, "OLD and NEW"),
        ("sketch", {"source": "a.npy"}, "no tool sketch"),
    ],
)
def test_a_wrong_call_is_an_error_of_one_line(reader, tool, arguments, words):
    assert words in reader.error(tool, **arguments)


# the process


def test_two_calls_at_once_and_a_listing_in_between(reader):
    answers = {}

    async def ask():
        async def call(cosine):
            result = await reader.client.call_tool("similarity", {"source": "a.npy", "cosines": [cosine]})
            answers[cosine] = result.structured_content["result"]["cosines"][0]["cosine"]

        async with anyio.create_task_group() as group:
            for cosine in (0.25, 0.75):
                group.start_soon(call, cosine)
            assert len((await reader.client.list_tools()).tools) == len(COMMANDS)

    reader.portal.call(ask)
    assert answers == {0.25: 0.25, 0.75: 0.75}


def test_the_server_works_after_a_canceled_call(reader):
    async def cancel():
        with anyio.move_on_after(0.01):
            await reader.client.call_tool("compress", {"source": "a.npy"})

    reader.portal.call(cancel)
    assert reader.answer("similarity", source="a.npy", cosines=[0.5])["exit_code"] == 0


def test_a_canceled_command_ends_at_its_next_progress_report(reader):
    call = ToolCall(list_tools()["audit"], {"sources": [str(reader.root / "a.npy")]}, Access(reader.root), _parser())
    call.cancel()
    written_files.append("written by an earlier call")
    with pytest.raises(ToolError, match="interrupted; existing files are unchanged"):
        call.run()
    assert ToolCall.wait_until_idle(0)


def test_progress_is_sent_while_a_command_runs(monkeypatch):
    from isoscope.cli import mcp

    received = threading.Event()

    class Work:
        progress = 0.5, "reading"
        run = staticmethod(lambda: {"was_sent": received.wait(600)})
        cancel = staticmethod(lambda: None)

    class Context:
        class session:
            @staticmethod
            async def report_progress(share, total, stage):
                assert (share, total, stage) == (0.5, 1.0, "reading")
                received.set()

    monkeypatch.setattr(mcp, "_PROGRESS_INTERVAL", 0.01)
    assert anyio.run(mcp._run_in_thread, Work, Context) == {"was_sent": True}


def test_stdout_is_only_the_protocol_and_the_end_of_input_ends_the_process(tmp_path):
    fill(tmp_path / "root")
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    broken = {"name": "audit", "arguments": {"sources": ["missing.npy"]}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "ping"},
        {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": broken},
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "isoscope", "mcp"],
        cwd=tmp_path / "root",
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        for line in lines:
            process.stdin.write(json.dumps(line) + "\n")
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(3)]
        rest, errors = process.communicate(timeout=600)  # closes standard input
    assert {answer["id"] for answer in answers} == {1, 2, 3}
    assert next(answer for answer in answers if answer["id"] == 3)["result"]["isError"]
    assert rest == ""
    assert process.returncode == 0, errors


def test_a_root_that_does_not_exist_is_an_error(tmp_path, capsys):
    assert main(["mcp", "--root", str(tmp_path / "missing")]) == 2
    err = capsys.readouterr().err
    assert "missing" in err
    assert err.count("\n") == 1
