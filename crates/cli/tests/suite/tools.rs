//! The tools that agents use, each run inside as a person would (P71 to P93; `docs/tools.md` has the table). A program that the
//! host lacks is named and the test skipped. What comes from package registries is fetched by `cargo xtask test` and goes in by `--input`:
//! inside, everything is offline.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::driver::{Call, Done, skipped};

/// For compilers and browsers on a machine that does something else too.
const PATIENCE: Duration = Duration::from_secs(110);

/// Whether the sandbox finds these programs in the host's system directories; where not, the test is skipped.
fn has_programs(test: &str, programs: &[&str]) -> bool {
    let is_there = |name: &str| {
        ["/usr/local/bin", "/usr/bin", "/bin"].iter().any(|folder| Path::new(folder).join(name).is_file())
    };
    let missing = programs.iter().find(|name| !is_there(name));
    if let Some(name) = missing {
        skipped(test, &format!("the program {name}"));
    }
    missing.is_none()
}

/// What `cargo xtask test` has fetched; where it has not, the test is skipped.
fn fetched(test: &str, name: &str) -> Option<String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("tools").join(name);
    if !folder.join(".complete").is_file() {
        skipped(test, &format!("the fetched {name}"));
        return None;
    }
    Some(format!("{}:/workspace/{name}", folder.display()))
}

/// Runs a script of bash in a sandbox of its own.
fn call(options: &[&str], script: &str) -> Call {
    let fixed = ["run", "--timeout", "100s"];
    Call::new(fixed.iter().chain(options).chain(&["--", "bash", "-euc", script])).patience(PATIENCE)
}

fn inside(script: &str) -> Done {
    call(&[], script).done()
}

#[test]
fn p_71_processes_share_locks() {
    if !has_programs("p_71_processes_share_locks", &["python3"]) {
        return;
    }
    let script = "cat >t.py <<'END'
import multiprocessing as m
from concurrent.futures import ProcessPoolExecutor
if __name__ == '__main__':
    m.Lock(), m.Semaphore(3), m.Queue().put(1)
    with ProcessPoolExecutor(2) as pool:
        print(list(pool.map(abs, [-1, -2, -3])))
END
python3 t.py";
    inside(script).assert(0, "[1, 2, 3]\n", "");
}

/// The default of Python 3.14 is `forkserver`, which binds a unix socket.
#[test]
fn p_72_pools_of_every_start_method() {
    if !has_programs("p_72_pools_of_every_start_method", &["python3"]) {
        return;
    }
    let script = "cat >t.py <<'END'
import multiprocessing as m
if __name__ == '__main__':
    for method in ['fork', 'spawn', 'forkserver']:
        with m.get_context(method).Pool(2) as pool:
            print(method, pool.map(abs, [-1, -2]))
END
python3 t.py";
    inside(script).assert(0, "fork [1, 2]\nspawn [1, 2]\nforkserver [1, 2]\n", "");
}

/// The toolchain lies in somebody's home, so it has to be shown; the crates come as a vendored folder.
#[test]
fn p_73_p_74_cargo_tests_and_clippy_with_signals_and_socket_pairs_offline() {
    const TEST: &str = "p_73_p_74_cargo_tests_and_clippy_with_signals_and_socket_pairs_offline";
    if !has_programs(TEST, &["gcc"]) {
        return;
    }
    let Some(crates) = fetched(TEST, "crates") else { return };
    // Cargo names itself to what it starts: TOOLCHAIN/bin/cargo.
    let toolchain = std::env::var_os("CARGO").map(PathBuf::from).and_then(|cargo| {
        let folder = cargo.canonicalize().ok()?.parent()?.parent()?.to_owned();
        folder.join("bin/cargo-clippy").is_file().then(|| folder.into_os_string().into_string().ok())?
    });
    let Some(toolchain) = toolchain else {
        return skipped(TEST, "the program cargo-clippy");
    };
    let path = format!("PATH={toolchain}/bin:/usr/bin:/bin");
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/signals");
    let options = ["--env", &path, "--input", &crates, "--input", fixture];
    let script = "mkdir ~/.cargo
printf '[source.crates-io]\\nreplace-with = \"here\"\\n[source.here]\\ndirectory = \"/workspace/crates\"\\n' >~/.cargo/config.toml
cd signals
cargo test --quiet --offline --lib | grep -o '1 passed'
cargo clippy --quiet --offline --all-targets -- -D warnings";
    call(&options, script).env("RINGFENCE_READ_ONLY_PATHS", &toolchain).done().assert(0, "1 passed\n", "");
}

#[test]
fn p_75_a_python_server_on_a_unix_socket() {
    if !has_programs("p_75_a_python_server_on_a_unix_socket", &["python3"]) {
        return;
    }
    let script = "cat >t.py <<'END'
import asyncio, socket
async def serve(reader, writer):
    writer.write((await reader.read(3)).upper())
    writer.close()
async def main():
    await asyncio.start_unix_server(serve, path='/tmp/s')
    reader, writer = await asyncio.open_unix_connection('/tmp/s')
    writer.write(b'abc')
    print(await reader.read())
asyncio.run(main())
one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
socket.send_fds(one, [b'x'], [0])
print(len(socket.recv_fds(other, 1, 1)[1]))
END
python3 t.py";
    inside(script).assert(0, "b'ABC'\n1\n", "");
}

#[test]
fn p_75_bun_installs_and_tests_offline() {
    const TEST: &str = "p_75_bun_installs_and_tests_offline";
    if !has_programs(TEST, &["node", "npm"]) {
        return;
    }
    let Some(packages) = fetched(TEST, "npm") else { return };
    let script = "npm init --yes >/dev/null
npm install --silent --offline --no-audit --no-fund ./npm/oven-bun-*.tgz ./npm/is-number-*.tgz
cat >a.test.ts <<'END'
import { expect, test } from 'bun:test';
import isNumber from 'is-number';
import { networkInterfaces } from 'os';
test('a server answers', async () => {
    expect(isNumber(1)).toBe(true);
    expect(Object.keys(networkInterfaces())).toEqual(['lo']);
    using server = Bun.serve({ port: 0, fetch: () => new Response('hello') });
    expect(await (await fetch(server.url)).text()).toBe('hello');
    using local = Bun.serve({ unix: '/tmp/s', fetch: () => new Response('here') });
    expect(await (await fetch('http://x/', { unix: '/tmp/s' })).text()).toBe('here');
});
END
node_modules/@oven/bun-*/bin/bun test 2>&1 | grep -oE '^ *[0-9]+ (pass|fail)$'";
    call(&["--input", &packages], script).done().assert(0, " 1 pass\n 0 fail\n", "");
}

/// Chromium's own sandbox needs user namespaces, which are closed inside (S13): what holds it is this one.
#[test]
fn p_76_chromium_prints_and_draws_a_page() {
    if !has_programs("p_76_chromium_prints_and_draws_a_page", &["chromium"]) {
        return;
    }
    // A page larger than the 64 MiB of shared memory that containers have.
    let script = "cat >page.html <<'END'
<p id=p></p><canvas id=c width=5000 height=5000></canvas>
<script>c.getContext('2d').fillRect(0, 0, 5000, 5000); p.textContent = 1 + 1</script>
END
chromium --headless --no-sandbox --disable-gpu --dump-dom page.html 2>/dev/null | grep -o '<p id=\"p\">2</p>'
chromium --headless --no-sandbox --disable-gpu --window-size=5000,5000 --screenshot page.html >/dev/null 2>&1
head -c 4 screenshot.png | tail -c 3";
    inside(script).assert(0, "<p id=\"p\">2</p>\nPNG", "");
}

#[test]
fn p_77_a_user_without_an_entry_has_settings_environments_and_packages() {
    const TEST: &str = "p_77_a_user_without_an_entry_has_settings_environments_and_packages";
    if !has_programs(TEST, &["python3", "git", "node", "npm"]) || !has_venv(TEST) {
        return;
    }
    let script = "git config --global user.name me && git config user.name
npm init --yes >/dev/null
mkdir dep && (cd dep && npm init --yes >/dev/null)
npm install --silent --offline --no-audit --no-fund ./dep && npm ls --parseable
python3 -m venv v && v/bin/python -c 'import sys; print(sys.prefix)'
id -un";
    let said = "me\n/workspace\n/workspace/node_modules/dep\n/workspace/v\nsandbox\n";
    inside(script).assert(0, said, "");
}

/// Debian has the module in a package of its own, and its library without it.
fn has_venv(test: &str) -> bool {
    let has_pip = |library: &str| {
        let folders = std::fs::read_dir(library).into_iter().flatten().flatten();
        folders.into_iter().any(|folder| folder.path().join("ensurepip/__init__.py").is_file())
    };
    let has = ["/usr/lib", "/usr/lib64", "/usr/local/lib"].into_iter().any(has_pip);
    if !has {
        skipped(test, "the program ensurepip");
    }
    has
}

#[test]
fn p_78_pip_uv_and_pytest_with_workers_offline() {
    const TEST: &str = "p_78_pip_uv_and_pytest_with_workers_offline";
    if !has_programs(TEST, &["python3", "pip3"]) || !has_venv(TEST) {
        return;
    }
    let Some(wheels) = fetched(TEST, "wheels") else { return };
    let script = "export PIP_NO_INDEX=1 PIP_FIND_LINKS=/workspace/wheels PIP_BREAK_SYSTEM_PACKAGES=1
pip3 install --quiet --no-warn-script-location --user iniconfig
python3 -c 'import iniconfig; print(iniconfig.__file__)' | grep -o '^/home/sandbox/.local/'
python3 -m venv v && v/bin/pip install --quiet uv pytest pytest-xdist
v/bin/uv venv --quiet u
VIRTUAL_ENV=u v/bin/uv pip install --quiet --offline --find-links wheels iniconfig
u/bin/python -c 'import iniconfig; print(iniconfig.__file__)' | grep -o '^/workspace/u/'
v/bin/uv run --quiet --offline --no-project --find-links wheels --with packaging python -c 'import packaging; print(1)'
printf 'import os\\ndef test_one(): pass\\ndef test_two(): assert os.environ[\"PYTEST_XDIST_WORKER\"]\\n' >test_it.py
v/bin/pytest --quiet --numprocesses 2 test_it.py | grep -o '2 passed'";
    call(&["--input", &wheels], script).done().assert(
        0,
        "/home/sandbox/.local/\n/workspace/u/\n1\n2 passed\n",
        "",
    );
}

/// An environment of the host's keeps its paths, so it is shown where it is, and read-only.
#[test]
fn p_79_an_environment_of_the_host_shown_read_only_works() {
    const TEST: &str = "p_79_an_environment_of_the_host_shown_read_only_works";
    if !has_programs(TEST, &["python3"]) || !has_venv(TEST) || fetched(TEST, "wheels").is_none() {
        return;
    }
    // Not where temporary files go: a sandbox has directories of its own there.
    let home = std::env::home_dir().unwrap();
    let folder = tempfile::TempDir::new_in(&home).unwrap();
    let path = folder.path().join("v");
    let venv = path.to_str().unwrap();
    let host = |program: &str, arguments: &[&str]| {
        let status = std::process::Command::new(program).args(arguments).status().unwrap();
        assert!(status.success(), "{program} {arguments:?}");
    };
    let wheels = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("tools/wheels");
    let wheels = wheels.to_str().unwrap();
    host("/usr/bin/python3", &["-m", "venv", venv]);
    let pip = format!("{venv}/bin/pip");
    host(&pip, &["install", "--quiet", "--no-index", "--find-links", wheels, "pytest"]);
    let script = format!(
        "echo 'def test_one(): pass' >test_it.py
{venv}/bin/pytest --quiet test_it.py | grep -o '1 passed'
touch {venv}/new 2>&1 | grep -o 'Read-only file system'"
    );
    let done = call(&[], &script).env("RINGFENCE_READ_ONLY_PATHS", venv).done();
    done.assert(0, "1 passed\nRead-only file system\n", "");
}

#[test]
fn p_80_p_81_git_makes_repositories_work_trees_and_commits() {
    if !has_programs("p_80_p_81_git_makes_repositories_work_trees_and_commits", &["git"]) {
        return;
    }
    let script = "git config --global user.name me; git config --global user.email me@example.com
git init --quiet && echo 1 >f && git add f && git commit --quiet --message one
git worktree add --quiet /tmp/tree 2>&1
cd /tmp/tree && echo 2 >f && git commit --quiet --all --message two && git gc --quiet
git log --format=%s
git clone --quiet /workspace /tmp/copy && git -C /tmp/copy log --format=%s
git -C /tmp/tree status --short";
    inside(script).assert(0, "two\none\none\n", "");
}

#[test]
fn p_82_shells_start_clean() {
    if !has_programs("p_82_shells_start_clean", &["zsh"]) {
        return;
    }
    let script = "zsh -ic 'echo $ZSH_NAME'; zsh -lc 'echo login'; bash -lc 'echo login'; bash -lc env | grep -c ^HOME=";
    inside(script).assert(0, "zsh\nlogin\nlogin\n1\n", "");
}

#[test]
fn p_92_memory_files_are_made_executed_and_mapped_twice() {
    if !has_programs("p_92_memory_files_are_made_executed_and_mapped_twice", &["python3"]) {
        return;
    }
    // As the compilers of JavaScript and WebAssembly do: one mapping to write, one to execute.
    let script = "cat >t.py <<'END'
import mmap, os
file = os.memfd_create('x', os.MFD_ALLOW_SEALING)
os.ftruncate(file, 4096)
writable = mmap.mmap(file, 4096)
executable = mmap.mmap(file, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)
writable[0] = 65
print(chr(executable[0]), flush=True)
copy = os.memfd_create('y')
os.write(copy, open('/usr/bin/echo', 'rb').read())
os.execve(copy, ['echo', 'from memory'], {})
END
python3 t.py";
    inside(script).assert(0, "A\nfrom memory\n", "");
}

#[test]
fn p_93_interfaces_are_listed() {
    if !has_programs("p_93_interfaces_are_listed", &["node", "python3"]) {
        return;
    }
    let script = "node -e 'console.log(Object.keys(os.networkInterfaces()))'
python3 -c 'import socket; print(socket.if_nameindex())'";
    inside(script).assert(0, "[ 'lo' ]\n[(1, 'lo')]\n", "");
}

#[test]
fn p_93_go_builds_tests_and_lists_interfaces() {
    if !has_programs("p_93_go_builds_tests_and_lists_interfaces", &["go"]) {
        return;
    }
    let script = "cat >main.go <<'END'
package main
import (\"fmt\"; \"net\"; \"os/user\")
func main() {
    interfaces, _ := net.Interfaces()
    user, _ := user.Current()
    fmt.Println(len(interfaces), interfaces[0].Name, user.Username)
}
END
cat >main_test.go <<'END'
package main
import \"testing\"
func TestNothing(t *testing.T) {}
END
go mod init example 2>/dev/null
go build -o main . && ./main
go test . | cut -f 1";
    inside(script).assert(0, "1 lo sandbox\nok  \n", "");
}

#[test]
fn tool_java_starts() {
    if !has_programs("tool_java_starts", &["java"]) {
        return;
    }
    let script =
        "java -XshowSettings:properties -version 2>&1 | grep -oE '(user.name|user.home|java.io.tmpdir) = .*'";
    inside(script).assert(0, "java.io.tmpdir = /tmp\nuser.home = /home/sandbox\nuser.name = sandbox\n", "");
}

/// It talks to its daemon over the loopback interface.
#[test]
fn tool_gradle_runs_a_task_in_its_daemon() {
    if !has_programs("tool_gradle_runs_a_task_in_its_daemon", &["gradle"]) {
        return;
    }
    let script = "echo 'task hello { doLast { println 1 + 1 } }' >build.gradle
gradle --offline --quiet hello 2>/dev/null";
    inside(script).assert(0, "2\n", "");
}

#[test]
fn tool_sqlite_keeps_a_journal_ahead() {
    if !has_programs("tool_sqlite_keeps_a_journal_ahead", &["sqlite3", "python3"]) {
        return;
    }
    let script = "sqlite3 a.db 'pragma journal_mode=wal; create table t(x); insert into t values (1), (2);'
python3 -c 'import sqlite3; print(sqlite3.connect(\"a.db\").execute(\"select sum(x) from t\").fetchall())'";
    inside(script).assert(0, "wal\n[(3,)]\n", "");
}

#[test]
fn tool_ffmpeg_makes_a_film() {
    if !has_programs("tool_ffmpeg_makes_a_film", &["ffmpeg"]) {
        return;
    }
    let script =
        "ffmpeg -v error -f lavfi -i testsrc=duration=1:size=64x64:rate=5 -f lavfi -i sine=duration=1 a.mp4
ffprobe -v error -show_entries stream=codec_type -of csv=p=0 a.mp4";
    inside(script).assert(0, "video\naudio\n", "");
}

#[test]
fn tool_gcc_and_make_build() {
    if !has_programs("tool_gcc_and_make_build", &["gcc", "make"]) {
        return;
    }
    let script = "printf '#include <stdio.h>\\nint main(void) { puts(\"built\"); }\\n' >a.c
printf 'a: a.c\\n\\t@gcc -O1 -g -o a a.c\\n' >Makefile
make --silent --jobs 4 && ./a";
    inside(script).assert(0, "built\n", "");
}

/// The checker for leaks stops its own process and looks at it; without that every program built like this fails (P92's kind).
#[test]
fn tool_sanitizers_find_leaks_and_nothing_where_there_is_none() {
    if !has_programs("tool_sanitizers_find_leaks_and_nothing_where_there_is_none", &["gcc"]) {
        return;
    }
    let script =
        "printf '#include <stdlib.h>\\nint main(int n, char **a) { return n > 1 && !malloc(42); }\\n' >a.c
gcc -g -fsanitize=address,undefined -o a a.c
./a && echo clean
./a leak 2>&1 | grep -o 'SUMMARY: AddressSanitizer: 42 byte.s. leaked'";
    inside(script).assert(0, "clean\nSUMMARY: AddressSanitizer: 42 byte(s) leaked\n", "");
}

#[test]
fn tool_tmux_and_pseudo_terminals() {
    if !has_programs("tool_tmux_and_pseudo_terminals", &["tmux", "script"]) {
        return;
    }
    let script = "tmux new-session -d -s s \"printf 'from %s' tmux; tmux wait -S said; sleep 60\"
tmux wait said; tmux capture-pane -p -t s | head -n 1; tmux kill-server
script --quiet --command 'test -t 1 && echo terminal' /dev/null";
    inside(script).assert(0, "from tmux\nterminal\r\n", "");
}
