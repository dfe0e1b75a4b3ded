"""The command `mcp`: serve the other commands to agents over the Model Context Protocol (MCP)."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isoscope._core.errors import MissingExtra, NotFoundError
from isoscope.cli.help import AGENTS, command
from isoscope.cli.session import INTERRUPTED, describe_interruption, handle_signals, interrupted, print_message

if TYPE_CHECKING:
    from mcp.server import Server

    from isoscope.cli.access import Access
    from isoscope.cli.mcp_tools import ToolCall

commands = typer.Typer()

_GRACE = 1.0  # seconds for a running command to end after the client has gone
_SCHEMA_ADDRESS = "isoscope://schemas/"
_PROGRESS_INTERVAL = 0.5  # seconds between progress notifications
_INSTRUCTIONS = (
    "Measure and repair the shape of embedding spaces. Start with audit on a file of vectors. A finding is about the "
    "shape: test a repair with advise on the user's own task before applying it. Each result has three sentences, the "
    "next command, and JSON whose fields are described by the resources isoscope://schemas/NAME."
)


@command(
    commands,
    AGENTS,
    "isoscope mcp --root data",
    "isoscope mcp --root . --allow-write",
    notes="Exit codes: 0 the client closed the connection; 2 invalid input, or isoscope[mcp] is not installed; 130 "
    "interrupted.",
)
def mcp(
    context: typer.Context,
    root: Annotated[
        Path,
        typer.Option(
            rich_help_panel="Access",
            metavar="DIR",
            help="Folder with the files that tools may read; paths are relative to it.",
        ),
    ] = Path("."),
    allow_write: Annotated[
        bool,
        typer.Option(
            "--allow-write", rich_help_panel="Access", help="Let tools write files below --root; fit and apply need it."
        ),
    ] = False,
    allow_remote: Annotated[
        bool,
        typer.Option(
            "--allow-remote",
            rich_help_panel="Access",
            help="Let tools read databases and URLs; with --allow-write, also write to databases.",
        ),
    ] = False,
) -> None:
    """Serve the commands to an agent over MCP (stdio).

    The tools are audit, advise, similarity, threshold, same, compress, fit and apply. The server reads only files below
    --root, and writes nothing without --allow-write. An MCP client starts this command; see docs/agents.md.
    """
    from isoscope.cli.access import Access

    folder = Path(os.path.realpath(root))
    if not folder.is_dir():
        raise NotFoundError(f"--root {root} is not a folder: pass an existing folder")
    try:
        import anyio
        from mcp.server import Server  # noqa: F401
    except ImportError as error:
        raise MissingExtra('isoscope mcp needs the MCP SDK: run pip install "isoscope[mcp]"') from error
    os.chdir(folder)
    server = _build_server(Access(folder, write=allow_write, remote=allow_remote), context.find_root().command)
    with redirect_stdout(getattr(sys.stdout, "terminal", sys.stdout)), handle_signals(_leave):
        anyio.run(_serve, server)
    interrupted.set()  # ends a command that the client no longer waits for
    _end_commands(0)


def _leave(number: int, frame: object) -> None:
    """End the server on a signal; raising an error instead would wait for the next line of the client."""
    interrupted.set()
    print_message(describe_interruption())
    _end_commands(INTERRUPTED)
    os._exit(INTERRUPTED)


def _end_commands(code: int) -> None:
    """Wait until the running command ends; end the process if that takes too long."""
    from isoscope.cli.mcp_tools import ToolCall

    if not ToolCall.wait_until_idle(_GRACE):
        os._exit(code)


async def _serve(server: Server[Any]) -> None:
    """Answer requests on standard input and output until the client closes the connection."""
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (requests, answers):
        await server.run(requests, answers, server.create_initialization_options())


def _build_server(access: Access, parser: Any) -> Server[Any]:
    """Return the server; `parser` is the parser of all commands."""
    from mcp import types
    from mcp.server import Server
    from mcp.shared.exceptions import MCPError

    from isoscope import __version__
    from isoscope._io.json import RESULT_SCHEMAS, format_json, read_schema
    from isoscope.cli.mcp_tools import OUTPUT_SCHEMA, ToolCall, ToolError, format_answer, list_tools

    tools, schemas = list_tools(), [name for names in RESULT_SCHEMAS.values() for name in names]

    async def list_all(context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=tool.name,
                    description=tool.description,
                    input_schema=tool.input_schema,
                    output_schema=OUTPUT_SCHEMA,
                    annotations=types.ToolAnnotations(
                        read_only_hint=not access.write, destructive_hint=tool.writes, open_world_hint=access.remote
                    ),
                )
                for tool in tools.values()
            ]
        )

    async def call(context: Any, params: Any) -> types.CallToolResult:
        if params.name not in tools:
            return _fail(f"there is no tool {params.name}: choose from {', '.join(tools)}")
        work = ToolCall(tools[params.name], params.arguments or {}, access, parser)
        try:
            answer = await _run_in_thread(work, context)
        except ToolError as error:
            return _fail(str(error))
        text = types.TextContent(type="text", text=format_answer(answer))
        return types.CallToolResult(content=[text], structured_content=answer)

    async def list_resources(context: Any, params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(
            resources=[
                types.Resource(
                    uri=f"{_SCHEMA_ADDRESS}{name}",
                    name=name,
                    description=read_schema(name)["description"],
                    mime_type="application/schema+json",
                )
                for name in schemas
            ]
        )

    async def read_resource(context: Any, params: Any) -> types.ReadResourceResult:
        name = str(params.uri).removeprefix(_SCHEMA_ADDRESS)
        if name not in schemas:
            raise MCPError(types.INVALID_PARAMS, f"there is no such resource: choose from {', '.join(schemas)}")
        content = types.TextResourceContents(
            uri=params.uri, mime_type="application/schema+json", text=format_json(read_schema(name))
        )
        return types.ReadResourceResult(contents=[content])

    def _fail(message: str) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(type="text", text=message)], is_error=True)

    return Server(
        "isoscope",
        version=__version__,
        instructions=_INSTRUCTIONS,
        on_list_tools=list_all,
        on_call_tool=call,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
    )


async def _run_in_thread(work: ToolCall, context: Any) -> dict[str, Any]:
    """Run a command in a thread and send its progress to the client, if the client asked for it."""
    import anyio

    done = anyio.Event()

    async def report() -> None:
        sent = None
        while not done.is_set():
            with anyio.move_on_after(_PROGRESS_INTERVAL):
                await done.wait()
            if not done.is_set() and work.progress not in (None, sent):
                sent = work.progress
                await context.session.report_progress(sent[0], 1.0, sent[1])

    results: list[dict[str, Any] | Exception] = []
    async with anyio.create_task_group() as group:
        group.start_soon(report)
        try:
            results.append(await anyio.to_thread.run_sync(work.run, abandon_on_cancel=True))
        except Exception as error:
            results.append(error)  # a task group would wrap it in an ExceptionGroup
        finally:
            work.cancel()
            done.set()
    (result,) = results
    if isinstance(result, Exception):
        raise result
    return result
