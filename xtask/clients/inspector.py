"""The command line of the MCP Inspector. Arguments: the program, `legacy` or `modern`.

Every call of it starts a server of its own. The `mcp-inspector` that `PATH` has is used.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile

from checks import (
    GONE, SOON, TOOLS, Failed, Report, expect, expect_annotations, expect_in, expect_that, marker, sleeps, wait_until,
)

BINARY, ERA = os.path.realpath(sys.argv[1]), sys.argv[2]
# Its own, from its manual.
OK, TOOL_ERROR = 0, 5

CHECKS = {}


def check(function):
    CHECKS[function.__name__.replace("_", " ")] = function
    return function


def inspect(folder, *arguments):
    """Starts the Inspector with a server in `folder`."""
    command = ["mcp-inspector", "--cli", "--protocol-era", ERA, "--format", "json", "-q", "--cwd", folder]
    command += ["-e", f"HOME={folder}", "-e", f"XDG_CONFIG_HOME={folder}", BINARY, "mcp", *arguments]
    environment = {**os.environ, "HOME": folder}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True)


def inspected(log, status, *arguments):
    """Runs the Inspector to its end and returns its result, or its error, and what else it said."""
    with tempfile.TemporaryDirectory() as folder:
        folder = os.path.realpath(folder)
        process = inspect(folder, *arguments)
        out, err = process.communicate(timeout=SOON)
        log.write(err)
        expect(f"the status of {arguments}", status, process.returncode)
        wait_until("nothing is left", lambda: not servers(folder), GONE)
        return json.loads(out)["result"], err


def servers(folder):
    """Returns the processes of our program that run in a folder."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{name}/cwd") == folder and os.readlink(f"/proc/{name}/exe") == BINARY:
                found.append(int(name))
        except OSError:
            pass
    return found


def called(log, status, tool, **arguments):
    """Calls a tool and returns its text and its structure."""
    result, _ = inspected(
        log, status, "--method", "tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(arguments)
    )
    expect("isError", status == TOOL_ERROR, result["isError"])
    expect("the content", ["text"], [block["type"] for block in result["content"]])
    return result["content"][0]["text"], result.get("structuredContent")


@check
def strict_listing(log):
    result, said = inspected(log, OK, "--method", "tools/list", "--strict")
    hints = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
    expect("the tools", TOOLS, [tool["name"] for tool in result["tools"]])
    expect_annotations({tool["name"]: tuple(tool["annotations"][hint] for hint in hints) for tool in result["tools"]})
    expect_in("the judgement of the schemas", "0 errors", said)


@check
def non_zero_exit(log):
    text, structure = called(log, OK, "run_command", command="echo out; exit 3")
    expect("the text", "[stdout]\nout\n[exit code: 3]", text)
    expect("the structure", ("out", 3), (structure["stdout"], structure["exit_code"]))


@check
def timeout(log):
    seconds = marker("4")
    text, structure = called(log, OK, "run_command", command=f"echo on; sleep {seconds}", timeout_seconds=1)
    expect_in("the text", "timed out after 1s", text)
    expect("the structure", (True, "on"), (structure["timed_out"], structure["stdout"]))
    expect("what still runs", [], sleeps(seconds))


@check
def write_a_file(log):
    text, structure = called(log, OK, "write_file", path="a/b.txt", content="one\n")
    expect_in("the text", "a/b.txt", text)
    expect("the structure", {"path": "a/b.txt", "bytes_written": 4}, structure)


@check
def read_a_file(log):
    text, structure = called(log, OK, "read_file", path="/etc/passwd")
    expect_in("the text", "sandbox", text)
    expect("the content", text, structure["content"])


@check
def list_a_directory(log):
    text, structure = called(log, OK, "list_directory", path="/")
    expect_in("the text", "workspace", text)
    expect_in("the structure", "workspace", json.dumps(structure))


@check
def missing_file(log):
    text, structure = called(log, TOOL_ERROR, "read_file", path="no/such.txt")
    expect_in("the text", "no/such.txt", text)
    expect("the structure", None, structure)


@check
def wrong_type(log):
    text, _ = called(log, TOOL_ERROR, "run_command", command=True)
    expect_in("the text", "`command` must be a string", text)


@check
def many_calls_at_once(log):
    result, _ = inspected(
        log, OK, "--method", "tools/call", "--tool-name", "run_command", "--tool-args-json", '{"command": "true"}',
        "--load", "--load-requests", "40", "--load-concurrency", "8",
    )
    expect("the requests and how they went", (40, 40, 0), tuple(result[key] for key in ("requests", "ok", "errors")))


@check
def the_client_is_killed(_log):
    seconds = marker("5")
    with tempfile.TemporaryDirectory() as folder:
        folder = os.path.realpath(folder)
        arguments = json.dumps({"command": f"setsid sleep {seconds} & sleep {seconds}"})
        process = inspect(folder, "--method", "tools/call", "--tool-name", "run_command", "--tool-args-json", arguments)
        try:
            wait_until("the command runs", lambda: len(sleeps(seconds)) == 2)
            expect_that("a server runs", servers(folder), servers(folder))
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        try:
            wait_until("nothing is left", lambda: not servers(folder) and not sleeps(seconds), GONE)
        except Failed:
            expect("what is left", ([], []), (servers(folder), sleeps(seconds)))


if __name__ == "__main__":
    report = Report(f"inspector {ERA}")
    for name, run in CHECKS.items():
        report.run(name, run)
    report.close()
