"""What the checks of every client share: how they are run and told, and what may be left of a server.

A check is a function. It passes by returning; a failure says what was expected and what came.
"""

import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

TOOLS = ["run_command", "read_file", "write_file", "list_directory"]

# Ceilings, so that a machine under load passes and a hang does not.
SOON = 20.0
GONE = 3.0


class Failed(Exception):
    """A check that did not hold."""


def expect(what, expected, got):
    if got != expected:
        raise Failed(f"{what}\n  expected: {expected!r}\n  got:      {got!r}")


def expect_in(what, part, whole):
    if part not in whole:
        raise Failed(f"{what}\n  expected: {part!r} in it\n  got:      {whole!r}")


def expect_that(what, holds, got):
    if not holds:
        raise Failed(f"{what}\n  got:      {got!r}")


class Report:
    """Runs checks to the end, whichever fail, and closes with one line."""

    def __init__(self, client):
        self.client = client
        self.passed = 0
        self.failed = 0
        self.begun = time.monotonic()

    def run(self, name, check):
        log = tempfile.TemporaryFile("w+")
        begun = time.monotonic()
        try:
            check(log)
            self.passed += 1
        except BaseException as error:  # noqa: BLE001: whatever a client throws is a failure of the check
            if isinstance(error, KeyboardInterrupt):
                raise
            self.failed += 1
            print(f"FAILED {self.client}: {name} ({time.monotonic() - begun:.1f} s)")
            for failure in leaves(error):
                print(f"  {failure}" if isinstance(failure, Failed) else f"  {said(failure)}")
            log.seek(0)
            for line in log.read().splitlines():
                print(f"  server: {line}")

    def close(self):
        print(f"{self.client}: {self.passed} passed, {self.failed} failed in {time.monotonic() - self.begun:.1f} s")
        sys.exit(1 if self.failed else 0)


def leaves(error):
    """Returns what is inside of exception groups."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]


def said(error):
    """Returns what an error of a client says, and where in our own scripts it came from."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).parent == Path(__file__).parent]
    place = f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "outside of the scripts"
    return f"{type(error).__name__}: {error} ({place})"


def wait_until(what, holds, seconds=SOON):
    """Waits until `holds` returns something true, and returns that."""
    end = time.monotonic() + seconds
    while True:
        found = holds()
        if found:
            return found
        if time.monotonic() > end:
            raise Failed(f"{what}: not so within {seconds:.0f} s")
        time.sleep(0.01)


# --- what runs ------------------------------------------------------------------------------------------------------------


def processes():
    """Returns every process by its number: when it began, its parent, its arguments."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            arguments = (entry / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[0] not in "ZX":
            found[int(entry.name)] = (fields[19], int(fields[1]), arguments)
    return found


def sleeps(seconds):
    """Returns the processes that run `sleep SECONDS`, in a sandbox or outside."""
    return [pid for pid, (_, _, arguments) in processes().items() if arguments == ["sleep", seconds]]


def marker(label):
    """Returns a number of seconds for `sleep` that nothing else on this machine uses."""
    marker.count = getattr(marker, "count", 0) + 1
    return f"3600.{os.getpid()}{label}{marker.count:03}"


class Server:
    """A server as the kernel sees it, and what belongs to it."""

    def __init__(self, pid):
        self.pid = pid
        self.seen = set()

    @staticmethod
    def of(client, binary):
        """Returns the server that a client started."""
        binary = os.path.realpath(binary)

        def found():
            for pid, (_, parent, _) in processes().items():
                try:
                    if parent == client and os.readlink(f"/proc/{pid}/exe") == binary:
                        return Server(pid)
                except OSError:
                    pass
            return None

        return wait_until(f"process {client} started {binary}", found)

    def family(self):
        """Returns the server and everything that descends from it, and remembers them."""
        all_of_them = processes()
        family = {self.pid} & all_of_them.keys()
        grown = True
        while grown:
            more = {pid for pid, (_, parent, _) in all_of_them.items() if parent in family} - family
            grown = bool(more)
            family |= more
        self.seen |= {(pid, all_of_them[pid][0]) for pid in family}
        return family

    def cgroups(self):
        """Returns the control groups that the server made."""
        prefix = f"ringfence-{self.pid}-"
        found = []
        for folder, folders, _ in os.walk("/sys/fs/cgroup"):
            found += [os.path.join(folder, name) for name in folders if name.startswith(prefix)]
            if folder.count("/") >= 7:
                folders.clear()
        return found

    def expect_cgroups(self):
        """The positive control of what is left: root has control groups where the kernel has any."""
        there = any(os.path.exists(f"/sys/fs/cgroup/{name}") for name in ("pids/cgroup.procs", "cgroup.controllers"))
        if os.geteuid() == 0 and there:
            expect_that("control groups while it runs", self.cgroups(), self.cgroups())

    def expect_nothing_left(self):
        def left():
            now = processes()
            return [now[pid][2] for pid, begun in self.seen if pid in now and now[pid][0] == begun] + self.cgroups()

        try:
            wait_until("nothing is left", lambda: not left(), GONE)
        except Failed:
            expect(f"left {GONE:.0f} s after the end", [], left())


# --- what every client's results are held against ---------------------------------------------------------------------------


def expect_annotations(of):
    """`of` maps a tool's name to its four hints: read-only, destructive, idempotent, open-world."""
    expected = {
        "run_command": (False, False, False, False),
        "read_file": (True, False, True, False),
        "write_file": (False, False, True, False),
        "list_directory": (True, False, True, False),
    }
    expect("the hints of the tools", expected, of)
