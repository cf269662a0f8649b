"""Coding agents themselves, with a scripted model on loopback. Arguments: the program, the folder of their npm packages, the agent.

Each agent has a home of its own and no network. `ringfence mcp install` writes its settings, so that is checked too.
"""

import ctypes
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from checks import GONE, SOON, Failed, Report, Server, expect, expect_in, expect_that, marker, processes, sleeps, wait_until
from model import DONE, Model

BINARY, PACKAGES, AGENT = os.path.realpath(sys.argv[1]), *sys.argv[2:4]


def leave_the_network():
    """Moves this process, and with it the agents, into a network of its own in which there is only loopback."""
    new_user, new_net = 0x10000000, 0x40000000
    user, group = os.geteuid(), os.getegid()
    flags = new_net if user == 0 else new_user | new_net
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), "leave the network")
    if flags & new_user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        up, running, set_flags = 0x1, 0x40, 0x8914
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sh", b"lo", up | running))


class Agent:
    """An agent in a home of its own. Subclasses say how it is set up, started and asked for its servers."""

    def __init__(self, home, model):
        self.home = Path(home)
        self.project = self.home / "project"
        self.project.mkdir()
        self.model = model
        path = f"{PACKAGES}/node_modules/.bin:/usr/local/bin:/usr/bin:/bin"
        self.environment = {"PATH": path, "HOME": home, "XDG_CONFIG_HOME": f"{home}/.config", "TERM": "dumb"}
        self.set_up()

    def start(self, *command):
        return subprocess.Popen(
            command, env=self.environment, cwd=self.project, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )

    def ran(self, log, *command):
        process = self.start(*command)
        try:
            said, _ = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
            raise Failed(f"{command[0]} did not end: {said[-2000:]}") from None
        log.write(said)
        expect(f"the status of {' '.join(command)}", 0, process.returncode)
        return said

    def install(self, log):
        return self.ran(log, BINARY, "mcp", "install", AGENT, "--scope", "user", "--", "--pids", "256")


class Claude(Agent):
    def set_up(self):
        self.environment |= {
            "CLAUDE_CONFIG_DIR": f"{self.home}/.claude", "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{self.model.port}",
            "ANTHROPIC_API_KEY": "dummy", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1", "ENABLE_TOOL_SEARCH": "false",
        }
        self.program = str(Path(find_spec("claude_agent_sdk").origin).parent / "_bundled/claude")

    def servers(self, log):
        return self.ran(log, self.program, "mcp", "list")

    def go(self):
        return [self.program, "-p", "go", "--allowedTools", "mcp__ringfence", "--output-format", "json"]

    @staticmethod
    def expect_results(ran, missing):
        structure = json.loads(ran[0])
        expect("what the model saw of the command", ("out", 3, False), (
            structure["stdout"], structure["exit_code"], ran[1],
        ))
        expect_in("what the model saw of the missing file", "no/such.txt", json.dumps(missing[0]))
        expect("whether the model was told that it is an error", True, missing[1])


class Codex(Agent):
    SETTINGS = """\
# The settings that were there before.
model = "scripted"
model_provider = "scripted"
approval_policy = "never"

[model_providers.scripted]
name = "scripted"
base_url = "http://127.0.0.1:{port}/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"

[analytics]
enabled = false
"""

    def set_up(self):
        folder = self.home / ".codex"
        folder.mkdir()
        self.environment |= {"CODEX_HOME": str(folder), "SCRIPTED_KEY": "dummy"}
        self.settings = folder / "config.toml"
        self.settings.write_text(self.SETTINGS.format(port=self.model.port))

    def install(self, log):
        before = self.settings.read_text()
        said = super().install(log)
        after = self.settings.read_text()
        expect("the settings that were there", before, after[: len(before)])
        super().install(log)
        expect("the settings after a second time", after, self.settings.read_text())
        return said

    def servers(self, log):
        return self.ran(log, "codex", "mcp", "list")

    def go(self):
        return ["codex", "exec", "--skip-git-repo-check", "--json", "go"]

    @staticmethod
    def expect_results(ran, missing):
        structure = json.loads(text_of(ran).split("Output:", 1)[-1])
        expect("what the model saw of the command", ("out", 3), (structure["stdout"], structure["exit_code"]))
        expect_in("what the model saw of the missing file", "no/such.txt", text_of(missing))


class Opencode(Agent):
    def set_up(self):
        (self.program,) = map(str, Path(PACKAGES).glob("node_modules/opencode-linux-*/bin/opencode"))
        self.environment |= {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
        self.settings = self.home / ".config/opencode/opencode.json"
        self.settings.parent.mkdir(parents=True)
        self.settings.write_text(json.dumps({"model": "scripted/scripted", "provider": {"scripted": {
            "npm": "@ai-sdk/openai-compatible", "models": {"scripted": {}},
            "options": {"baseURL": f"http://127.0.0.1:{self.model.port}/v1", "apiKey": "dummy"},
        }}}))

    def servers(self, log):
        return self.ran(log, self.program, "mcp", "list")

    def go(self):
        return [self.program, "run", "go", "--format", "json"]

    @staticmethod
    def expect_results(ran, missing):
        expect("what the model saw of the command", "[stdout]\nout\n[exit code: 3]", ran)
        expect_in("what the model saw of the missing file", "no/such.txt", missing)


KINDS = {
    # The agent, and what its list of servers says of one that it connected to.
    "claude": (Claude, "Connected"),
    # This one only lists, it does not connect.
    "codex": (Codex, "enabled"),
    "opencode": (Opencode, "connected"),
}


def text_of(output):
    """Returns the text of a result in the Responses dialect."""
    return output if isinstance(output, str) else "".join(block["text"] for block in output)


def with_agent(steps, check):
    """Gives a check an agent of its own in a home of its own."""

    def run(log):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home, Model(steps) as model:
            agent = KINDS[AGENT][0](os.path.realpath(home), model)
            agent.install(log)
            check(log, agent)

    return run


def connects(log, agent):
    listed = agent.servers(log)
    expect_in("the list of servers", BINARY, listed)
    expect_in("the list of servers", KINDS[AGENT][1], listed)


SECONDS = marker("7")
STEPS = [
    ("run_command", {"command": f"echo out; setsid sleep {SECONDS} & exit 3"}),
    ("read_file", {"path": "no/such.txt"}),
]


def a_turn(log, agent):
    said = agent.ran(log, *agent.go())
    expect_in("what the agent says", DONE, said)
    expect_that("the model got its results", agent.model.results is not None, agent.model.requests[-1:])
    agent.expect_results(*agent.model.results)
    nothing_left(SECONDS)


def killed(_log, agent):
    process = agent.start(*agent.go())
    try:
        wait_until("the command runs", lambda: len(sleeps(LONG)) == 2)
        server = Server(ours()[0])
        expect_that("server, launcher, agent, shim and two sleeps", len(server.family()) >= 6, server.family())
        server.expect_cgroups()
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    nothing_left(LONG)
    server.expect_nothing_left()


LONG = marker("8")


def ours():
    """Returns the servers that run from the program under test."""
    found = []
    for pid in processes():
        try:
            if os.readlink(f"/proc/{pid}/exe") == BINARY:
                found.append(pid)
        except OSError:
            pass
    return found


def nothing_left(seconds):
    try:
        wait_until("nothing is left", lambda: not sleeps(seconds) and not ours(), GONE)
    except Failed:
        expect("what is left", ([], []), (sleeps(seconds), ours()))


if __name__ == "__main__":
    leave_the_network()
    report = Report(AGENT)
    report.run("the settings work", with_agent([], connects))
    report.run("a turn", with_agent(STEPS, a_turn))
    report.run("the agent is killed", with_agent([
        ("run_command", {"command": f"setsid sleep {LONG} & sleep {LONG}"}),
    ], killed))
    report.close()
