"""The official Python client, over stdio. Arguments: the program, and `legacy` or a revision of the protocol.

With `hold MARKER` behind them it is the client that gets killed: it starts a command and waits for it.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import asynccontextmanager

import anyio
import jsonschema
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client

from checks import (
    GONE, SOON, TOOLS, Report, Server, expect, expect_annotations, expect_in, expect_that, marker, sleeps, wait_until,
)

BINARY, ERA = os.path.realpath(sys.argv[1]), sys.argv[2]
LATEST_LEGACY = "2025-11-25"


@asynccontextmanager
async def connected(log, mode=ERA):
    """Connects to a server of its own, and afterwards holds the machine against it."""
    with tempfile.TemporaryDirectory() as folder:
        parameters = StdioServerParameters(
            command=BINARY, args=["mcp", "--pids", "128"], cwd=folder, env={"HOME": folder, "XDG_CONFIG_HOME": folder}
        )
        async with Client(stdio_client(parameters, errlog=log), mode=mode, read_timeout_seconds=SOON) as client:
            server = Server.of(os.getpid(), BINARY)
            yield client, server
            server.family()
        server.expect_nothing_left()


CHECKS = {}


def check(function):
    """Registers a check that is given a client and its server."""

    def run(log):
        async def whole():
            async with connected(log) as (client, server):
                await function(client, server)

        anyio.run(whole)

    CHECKS[function.__name__.replace("_", " ")] = run
    return function


def raw_check(function):
    """Registers a check that needs no client."""
    CHECKS[function.__name__.replace("_", " ")] = lambda _log: function()
    return function


async def run_command(client, command, **more):
    return await client.call_tool("run_command", {"command": command, **more})


def text(result):
    expect("the content", ["text"], [block.type for block in result.content])
    return result.content[0].text


def structure(result):
    expect("isError", (False, False), (result.is_error, result.structured_content is None))
    return result.structured_content


async def until(what, holds, seconds=SOON):
    await anyio.to_thread.run_sync(wait_until, what, holds, seconds)


@check
async def opening(client, _server):
    expected = LATEST_LEGACY if ERA == "legacy" else ERA
    expect("the revision", expected, client.protocol_version)
    if ERA != "legacy":
        # With a revision said beforehand this client asks for nothing at all.
        discovered = await client.session.discover()
        expect("the revisions on offer", True, ERA in discovered.supported_versions)
    expect("the capabilities", (True, None, None), (
        client.server_capabilities.tools is not None or ERA != "legacy",
        client.server_capabilities.resources, client.server_capabilities.prompts,
    ))


@check
async def listing(client, server):
    first = (await client.list_tools(cache_mode="bypass")).tools
    expect("the tools", TOOLS, [tool.name for tool in first])
    expect_annotations({tool.name: (
        tool.annotations.read_only_hint, tool.annotations.destructive_hint,
        tool.annotations.idempotent_hint, tool.annotations.open_world_hint,
    ) for tool in first})
    for tool in first:
        for schema in (tool.input_schema, tool.output_schema):
            jsonschema.Draft202012Validator.check_schema(schema)
            expect(f"the type in a schema of {tool.name}", "object", schema["type"])
        expect(f"{tool.name} has title and description", (True, True), (bool(tool.title), bool(tool.description)))
    again = (await client.list_tools(cache_mode="bypass")).tools
    expect("the same, asked again", *([tool.model_dump_json() for tool in tools] for tools in (first, again)))
    expect("processes before the first call", {server.pid}, server.family())


def raw_answers(*requests):
    """Starts a server and returns the lines with which it answers requests that are written to it by hand."""
    meta = {f"io.modelcontextprotocol/{key}": value for key, value in {
        "protocolVersion": ERA, "clientInfo": {"name": "raw", "version": "1"}, "clientCapabilities": {},
    }.items()}
    opening = []
    if ERA == "legacy":
        meta = {}
        about = {"protocolVersion": LATEST_LEGACY, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
        opening = [("initialize", about), ("notifications/initialized", {})]
    answers = []
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([BINARY, "mcp"], cwd="/", env={"PATH": os.environ["PATH"]}, **pipes) as server:
        for number, (method, params) in enumerate([*opening, *requests]):
            message = {"jsonrpc": "2.0", "method": method, "params": {**params, "_meta": meta}}
            if not method.startswith("notifications/"):
                message["id"] = number
            server.stdin.write(json.dumps(message).encode() + b"\n")
            server.stdin.flush()
            if "id" in message:
                answers.append(server.stdout.readline())
        server.stdin.close()
        expect("the status of the server", 0, server.wait(SOON))
    return answers[1 if opening else 0 :]


@raw_check
def the_definitions_are_the_same_bytes():
    one, other = (raw_answers(("tools/list", {})) for _ in range(2))
    expect("the answer of another process", one, other)
    (line,) = one
    expect_that("an answer with the tools", len(json.loads(line)["result"]["tools"]) == 4, line)


@raw_check
def a_cancellation_that_comes_late():
    # One agent sends one after every answer.
    number = 2 if ERA == "legacy" else 0
    call = ("tools/call", {"name": "run_command", "arguments": {"command": "true"}})
    late = ("notifications/cancelled", {"requestId": number, "reason": "late"})
    for answer in raw_answers(call, late, call):
        expect("the exit code", 0, json.loads(answer)["result"]["structuredContent"]["exit_code"])


@check
async def run_a_command(client, _server):
    result = await run_command(client, "echo out; echo err >&2")
    expect("the text", "[stdout]\nout\n[stderr]\nerr", text(result))
    found = structure(result)
    expect("the structure", ("out", "err", 0, "exited", False), tuple(
        found[key] for key in ("stdout", "stderr", "exit_code", "ending", "timed_out")
    ))


@check
async def non_zero_exit(client, _server):
    result = await run_command(client, "echo out; exit 3")
    expect_in("the text", "[exit code: 3]", text(result))
    expect("the structure", ("out", 3), (structure(result)["stdout"], structure(result)["exit_code"]))


@check
async def files(client, _server):
    written = await client.call_tool("write_file", {"path": "a/b.txt", "content": "one\ntwo\n"})
    expect("written", {"path": "a/b.txt", "bytes_written": 8}, structure(written))
    expect_in("written, as text", "a/b.txt", text(written))
    read = await client.call_tool("read_file", {"path": "a/b.txt", "offset": 2})
    expect("read", ("two", 2, 2), tuple(structure(read)[key] for key in ("content", "offset", "total_lines")))
    expect("read, as text", "two", text(read))
    listed = await client.call_tool("list_directory", {"path": "a"})
    expect_in("listed", "b.txt", repr(structure(listed)))
    expect_in("listed, as text", "b.txt", text(listed))
    expect("seen by a command", "one\ntwo", structure(await run_command(client, "cat a/b.txt"))["stdout"])


@check
async def truncated(client, _server):
    result = await run_command(client, "seq 100000; seq 50000 >&2; exit 4")
    found = structure(result)
    expect("the structure", (True, 588895, "100000", True, 4), (
        found["stdout_truncated"], found["stdout_total_bytes"], found["stdout"].splitlines()[-1],
        found["stderr_truncated"], found["exit_code"],
    ))
    for part in ("100000", "truncated", "[exit code: 4]"):
        expect_in("the text", part, text(result))
    await run_command(client, "seq 5000 > long; mkdir many; cd many; seq 3000 | xargs touch")
    read = await client.call_tool("read_file", {"path": "long"})
    expect("where to read on", (2001, 5000), (structure(read)["next_offset"], structure(read)["total_lines"]))
    expect_in("where to read on, as text", "2001", text(read).splitlines()[-1])
    listed = await client.call_tool("list_directory", {"path": "many"})
    expect_in("how many more there are", "1000", repr({**structure(listed), "entries": None}))
    expect_in("how many more there are, as text", "1000", text(listed).splitlines()[-1])


@check
async def ended_by_a_signal(client, _server):
    result = await run_command(client, "echo out; kill -SEGV $$")
    found = structure(result)
    expect("the structure", ("signalled", 11, None, "out"), tuple(
        found.get(key) for key in ("ending", "signal", "exit_code", "stdout")
    ))
    expect_in("the text", "signal", text(result))


@check
async def timeout(client, _server):
    seconds = marker("1")
    begun = time.monotonic()
    result = await run_command(client, f"echo started; sleep {seconds}", timeout_seconds=1)
    expect_that("it took about a second", 0.9 < time.monotonic() - begun < 8, time.monotonic() - begun)
    found = structure(result)
    expect("the structure", (True, "timed_out", None, "started", 1.0), tuple(
        found.get(key) for key in ("timed_out", "ending", "exit_code", "stdout", "timeout_seconds")
    ))
    expect_in("the text", "timed out after 1s", text(result))
    expect("what still runs", [], sleeps(seconds))


@check
async def missing_file(client, _server):
    result = await client.call_tool("read_file", {"path": "no/such.txt"})
    expect("isError", (True, None), (result.is_error, result.structured_content))
    expect_in("the text", "no/such.txt", text(result))


@check
async def wrong_arguments(client, _server):
    for tool, arguments, parts in [
        ("run_command", {"command": ["ls"]}, ["command", "string"]),
        ("run_command", {"command": True}, ["command", "string"]),
        ("run_command", {"command": "true", "timeout_seconds": "soon"}, ["timeout_seconds", "number"]),
        ("read_file", {"path": "a", "offset": "2nd"}, ["offset", "whole number"]),
        ("read_file", {"path": "a", "ofset": 2}, ["ofset"]),
        ("write_file", {"path": "a"}, ["content"]),
    ]:
        result = await client.call_tool(tool, arguments)
        expect(f"isError of {tool} {arguments}", True, result.is_error)
        for part in parts:
            expect_in(f"the text for {tool} {arguments}", part, text(result))


@check
async def unknown_tool(client, _server):
    try:
        result = await client.call_tool("reboot", {})
    except MCPError as error:
        expect("the error", -32602, error.error.code)
        expect_in("its text", "reboot", error.error.message)
    else:
        expect("an unknown tool", "a protocol error", result)


@check
async def progress(client, _server):
    heard = []

    async def hear(progress, _total, message):
        heard.append((progress, message))

    command = "for i in 1 2 3 4 5 6; do echo line $i; sleep 0.5; done"
    result = await client.call_tool("run_command", {"command": command}, progress_callback=hear)
    expect("the exit code", 0, structure(result)["exit_code"])
    steps = [step for step, _ in heard]
    # A step a second: two or three, and some more where the machine is busy.
    expect_that("a few steps that rise", 2 <= len(steps) <= 5 and steps == sorted(set(steps)), heard)
    expect_in("the last message", "line ", heard[-1][1])
    at_the_end = len(heard)
    await anyio.sleep(1.2)
    expect("steps after the end", at_the_end, len(heard))


@check
async def cancellation(client, server):
    seconds = marker("2")
    await run_command(client, "echo kept > file")
    async with anyio.create_task_group() as calls:
        calls.start_soon(run_command, client, f"setsid sleep {seconds} & trap '' TERM; sleep {seconds}")
        await until("the command runs", lambda: len(sleeps(seconds)) == 2)
        calls.cancel_scope.cancel()
    await until("the command is gone", lambda: not sleeps(seconds), GONE)
    expect("the sandbox afterwards", "kept", structure(await run_command(client, "cat file"))["stdout"])


@check
async def two_calls_at_once(client, _server):
    answers = {}

    async def call(name):
        answers[name] = structure(await run_command(client, f"echo {name}; sleep 0.2"))["stdout"]

    async with anyio.create_task_group() as calls:
        for name in ("one", "two"):
            calls.start_soon(call, name)
    expect("the answers", {"one": "one", "two": "two"}, answers)


@check
async def a_call_goes_on_while_others_are_cancelled(client, _server):
    async with anyio.create_task_group() as calls:
        async def whole():
            result = await run_command(client, "sleep 1; echo whole")
            expect("the call that was not cancelled", "whole", structure(result)["stdout"])

        calls.start_soon(whole)
        for _ in range(5):
            with anyio.move_on_after(0.05):
                await run_command(client, "sleep 30")


@check
async def one_sandbox_made_by_the_first_call(client, server):
    expect("the family before", {server.pid}, server.family())
    expect("the control groups before", [], server.cgroups())
    first = structure(await run_command(client, "echo here > file; hostname"))["stdout"]
    made = (len(server.family()), server.cgroups())
    expect_that("a launcher and an agent", made[0] >= 3, made)
    expect("the second call", f"here\n{first}", structure(await run_command(client, "cat file; hostname"))["stdout"])
    expect("launcher, agent and control groups after it", made, (len(server.family()), server.cgroups()))


def end_by(name, end):
    """Registers a way of ending: `end` is given the number of the client and that of the server."""

    def run(_log):
        seconds = marker("3")
        holder = subprocess.Popen([sys.executable, __file__, BINARY, ERA, "hold", seconds], stderr=subprocess.DEVNULL)
        try:
            wait_until("the command runs", lambda: len(sleeps(seconds)) == 2 or holder.poll() is not None)
            expect("the status of the client", None, holder.poll())
            server = Server.of(holder.pid, BINARY)
            expect_that("server, launcher, agent, shim and two sleeps", len(server.family()) == 6, server.family())
            server.expect_cgroups()
            end(holder.pid, server.pid)
            server.expect_nothing_left()
            expect("what still runs", [], sleeps(seconds))
        finally:
            holder.kill()
            holder.wait()

    CHECKS[name] = run


end_by("the client is killed", lambda client, _: os.kill(client, signal.SIGKILL))
end_by("the client is ended by SIGTERM", lambda client, _: os.kill(client, signal.SIGTERM))
end_by("the server is ended by SIGTERM", lambda _, server: os.kill(server, signal.SIGTERM))
end_by("the server is ended by SIGINT", lambda _, server: os.kill(server, signal.SIGINT))
end_by("the server is killed", lambda _, server: os.kill(server, signal.SIGKILL))


def startup(log):
    async def whole():
        begun = time.monotonic()
        async with connected(log) as (client, _):
            await client.list_tools(cache_mode="bypass")
            took = time.monotonic() - begun
            expect_that("from the start of the process to its tools in under a second", took < 1.0, took)

    anyio.run(whole)


def negotiation(log):
    """A client that knows both eras takes the modern one."""
    async def whole():
        async with connected(log, "auto") as (client, _):
            expect("the revision", "2026-07-28", client.protocol_version)
            expect("the server", "ringfence", client.server_info.name)
            expect_in("the instructions", "sandbox", client.instructions)

    anyio.run(whole)


async def hold(seconds):
    async with connected(sys.stderr) as (client, _):
        await run_command(client, f"setsid sleep {seconds} & trap '' TERM INT; sleep {seconds}", timeout_seconds=300)


if __name__ == "__main__":
    if sys.argv[3:4] == ["hold"]:
        anyio.run(hold, sys.argv[4])
    report = Report(f"python {ERA}")
    report.run("startup", startup)
    if ERA != "legacy":
        report.run("negotiation", negotiation)
    for name, run in CHECKS.items():
        report.run(name, run)
    report.close()
