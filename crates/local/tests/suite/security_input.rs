//! What comes from outside the sandbox's own code: specs, settings, environments, working directories, terminals.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ringfence_core::{
    Backend, Ending, EnvMap, ErrorKind, GuestPath, Invocation, SandboxSpec, TerminalRequest, TerminalSize,
};
use ringfence_local::LocalConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::security_support::{has_python, inside, is_root, lines, outside, script};
use super::support::{Box, Marker, Said, program, shell, until};

/// The names of all properties anywhere in a schema.
fn properties(schema: &serde_json::Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    match schema {
        serde_json::Value::Object(object) => {
            if let Some(serde_json::Value::Object(properties)) = object.get("properties") {
                names.extend(properties.keys().cloned());
            }
            object.values().for_each(|value| names.extend(properties(value)));
        }
        serde_json::Value::Array(values) => values.iter().for_each(|value| names.extend(properties(value))),
        _ => {}
    }
    names
}

#[test]
fn s_07_s_45_no_setting_names_a_user_or_loosens_the_walls() {
    let schemas =
        [schemars::schema_for!(LocalConfig), schemars::schema_for!(ringfence_core::spec::SpecDocument)];
    let mut names = BTreeSet::new();
    for schema in schemas {
        names.extend(properties(&schema.to_value()));
    }
    assert!(names.contains("read_only_paths") && names.contains("workdir"), "{names:?}");
    // A new field has to be put here, which is the moment to think about it.
    let known = [
        "allow_egress_to",
        "allow_egress_to_cidrs",
        "audit_contents",
        "block_network",
        "cpus",
        "default_disk",
        "disk",
        "env",
        "idle_seconds",
        "image",
        "isolation",
        "labels",
        "least_network_strength",
        "lifetime_seconds",
        "limits",
        "memory",
        "owner",
        "pids",
        "read_only_paths",
        "runtime_dir",
        "shell",
        "workdir",
    ];
    let unknown: Vec<&String> = names.iter().filter(|name| !known.contains(&name.as_str())).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    for name in [
        "user",
        "uid",
        "gid",
        "group",
        "privileged",
        "capabilities",
        "seccomp",
        "devices",
        "host_network",
        "sandbox",
        "mounts",
    ] {
        let spec = serde_json::json!({ name: "1000:0" });
        assert!(serde_json::from_value::<SandboxSpec>(spec.clone()).is_err(), "{name}");
        assert!(serde_json::from_value::<LocalConfig>(spec).is_err(), "{name}");
    }
    // Control: a field that exists is taken.
    assert!(serde_json::from_value::<SandboxSpec>(serde_json::json!({ "workdir": "/srv" })).is_ok());
}

#[tokio::test]
async fn s_45_no_variable_and_no_file_of_the_workspace_changes_the_walls() {
    let sandbox = Box::new().await;
    for name in [
        ".ringfence.toml",
        "ringfence.toml",
        ".ringfence/config.toml",
        ".env",
        ".bashrc",
        ".bash_profile",
        ".profile",
    ] {
        for place in ["/workspace", "/home/sandbox"] {
            let path = GuestPath::new(format!("{place}/{name}")).unwrap();
            let content = b"sandbox = false\nexport PLANTED=1\nseccomp = \"off\"\n";
            sandbox.backend.write_file(&sandbox.id, &path, content).await.unwrap();
        }
    }
    let mut request =
        shell("grep -E '^(CapEff|NoNewPrivs|Seccomp:)' /proc/self/status; echo \"<$PLANTED>\"", 5.0);
    let variables = [
        "RINGFENCE_DISABLE",
        "RINGFENCE_NO_SANDBOX",
        "RINGFENCE_SECCOMP",
        "RINGFENCE_OWNER",
        "BASH_ENV",
        "ENV",
    ];
    let valued = variables.map(|name| (name, if name.ends_with("ENV") { "/workspace/.env" } else { "1" }));
    request.env = EnvMap::new(valued).unwrap();
    let said = sandbox.request(request).await;
    let text = String::from_utf8_lossy(&said.stdout.bytes).into_owned();
    assert!(text.starts_with("CapEff:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n"), "{text}");
    // The caller's own BASH_ENV is the caller's; without it nothing of the workspace is read.
    let said = sandbox.run("echo \"<$PLANTED>\"").await;
    assert_eq!(said, Said::ok("<>\n"));
}

#[tokio::test]
async fn s_42_values_arrive_exactly_and_names_cannot_be_code() {
    const TEST: &str = "s_42_values_arrive_exactly_and_names_cannot_be_code";
    if !has_python(TEST) {
        return;
    }
    let long = "x".repeat(ringfence_core::env::MAX_VALUE_BYTES);
    let values: Vec<(String, String)> = [
        "",
        "a\nb",
        "'",
        "\"",
        "$(touch /tmp/pwned)",
        "`id`",
        "a=b=c",
        "\\",
        "\u{1}\u{7f}\u{85}\u{202e}é",
        "; exit 9",
        "-n",
        long.as_str(),
    ]
    .into_iter()
    .enumerate()
    .map(|(index, value)| (format!("VALUE_{index}"), value.to_owned()))
    .collect();
    let spec = SandboxSpec::new().with_env(EnvMap::new(values.clone()).unwrap());
    let sandbox = Box::with(spec).await;
    let probe = "for name, value in sorted(os.environb.items()): print(name.decode(), value.hex())";
    let expected: BTreeMap<&str, String> = values
        .iter()
        .map(|(name, value)| (name.as_str(), value.bytes().map(|byte| format!("{byte:02x}")).collect()))
        .collect();
    let of_spec = lines(&inside(&sandbox, probe).await);
    for (name, value) in &expected {
        assert_eq!(of_spec[*name], *value, "{name}");
    }
    assert_eq!(sandbox.run("ls /tmp").await, Said::ok(""));
    for name in
        ["FOO;touch /tmp/pwned", "A=B", "", "A\nB", "A\0B", "$(x)", "1A", "A-B", "A B", "é", "BASH_FUNC_x%%"]
    {
        assert!(EnvMap::new([(name, "x")]).is_err(), "{name:?}");
    }
    for value in ["x\0y".to_owned(), "x".repeat(ringfence_core::env::MAX_VALUE_BYTES + 1)] {
        assert!(EnvMap::new([("A", value)]).is_err());
    }
}

#[tokio::test]
async fn s_44_where_a_command_starts_changes_nothing_about_where_it_writes() {
    let sandbox = Box::new().await;
    assert_eq!(sandbox.run("ln -s / rootlink; ln -s /usr usrlink; ln -s ../../.. up").await, Said::ok(""));
    for workdir in ["/", "..", "../..", "rootlink", "usrlink", "up", "/usr", "/etc", "/proc/self"] {
        let mut request = shell(
            "for f in /usr/x /etc/x /x usr/x; do echo x > $f && echo wrote $f; done; echo x > /workspace/y",
            5.0,
        );
        request.workdir = Some(GuestPath::new(workdir).unwrap());
        let result = sandbox.request(request).await;
        assert_eq!(
            (result.ending, &result.stdout.bytes[..]),
            (Ending::Exited(0), &b""[..]),
            "{workdir}: {result:?}"
        );
    }
    for workdir in ["/", "/..", "/usr/x", "/proc/x", "/srv/../etc", "/./usr", "//dev", "/sys", "/etc"] {
        let Ok(spec) = SandboxSpec::new().with_workdir(workdir) else { continue };
        let error = sandbox.backend.create(&spec).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Refused), "{workdir}: {error}");
    }
    // Control: elsewhere it is taken, and writable.
    let spec = SandboxSpec::new().with_workdir("/srv/project").unwrap();
    let elsewhere = Box::with(spec).await;
    assert_eq!(elsewhere.run("pwd; echo x > y; cat y").await, Said::ok("/srv/project\nx\n"));
}

const TYPE: &str = r"
import fcntl, termios
byte = ctypes.create_string_buffer(b'!')
for name, request in [('TIOCSTI', 0x5412), ('TIOCSTI_high', 0x100005412), ('TIOCSTI_higher', 0xffffffff00005412), ('TIOCLINUX', 0x541c),
                      ('TIOCLINUX_high', 0x70000541c), ('TIOCSETD', 0x5423), ('TIOCSETD_high', 0x100005423)]:
    print(name, call(@IOCTL@, 0, request, byte))
print('TIOCGWINSZ', call(@IOCTL@, 0, 0x5413, ctypes.create_string_buffer(8)))
print('is_terminal', os.isatty(0), os.isatty(1), os.isatty(2))
";

#[tokio::test]
async fn s_11_tiocsti_is_refused_whatever_the_high_bits() {
    const TEST: &str = "s_11_tiocsti_is_refused_whatever_the_high_bits";
    if !has_python(TEST) {
        return;
    }
    let probe = TYPE.replace("@IOCTL@", &libc::SYS_ioctl.to_string());
    let sandbox = Box::new().await;
    let arguments = ["/usr/bin/python3", "-ISc", &script(&probe)];
    let request = TerminalRequest {
        invocation: Some(Invocation::Program(
            arguments.iter().map(|text| text.as_bytes().to_vec()).collect(),
        )),
        size: TerminalSize { rows: 24, columns: 80 },
        workdir: None,
        env: EnvMap::default(),
    };
    let mut terminal = sandbox.backend.open_terminal(&sandbox.id, request).await.unwrap();
    let mut output = String::new();
    let read = terminal.output.read_to_string(&mut output);
    tokio::time::timeout(Duration::from_secs(10), read).await.unwrap().unwrap();
    assert_eq!(terminal.control.wait().await.unwrap(), Ending::Exited(0), "{output}");
    let found = lines(&output.replace('\r', ""));
    for (name, outcome) in &found {
        let expected = match name.as_str() {
            "TIOCGWINSZ" => "ok",
            "is_terminal" => "True True True",
            _ => "EPERM",
        };
        assert_eq!(outcome, expected, "{name}");
    }
    assert_eq!(found.len(), 9);
    // Control: where the kernel still has it, the same call types on a terminal of the host.
    let legacy =
        std::fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti").is_ok_and(|value| value == "0\n");
    let control = outside(&format!(
        "import pty, termios\npid, master = pty.fork()\nif pid == 0:\n  byte = ctypes.create_string_buffer(b'!')\n  print(call({}, 0, 0x100005412, \
         byte))\n  sys.stdout.flush()\n  os._exit(0)\nsaid = b''\ntry:\n  while part := os.read(master, 999): said += part\nexcept OSError: \
         pass\nprint(said.decode().replace('!', '').strip())",
        libc::SYS_ioctl
    ));
    assert_eq!(control, if legacy && !is_root() { "EIO\n" } else { "ok\n" });
}

#[tokio::test]
async fn s_51_signals_of_a_terminal_stay_on_it() {
    let sandbox = Box::new().await;
    let request = TerminalRequest {
        invocation: None,
        size: TerminalSize { rows: 24, columns: 80 },
        workdir: None,
        env: EnvMap::new([("TERM", "dumb"), ("PS1", "> ")]).unwrap(),
    };
    let mut terminal = sandbox.backend.open_terminal(&sandbox.id, request).await.unwrap();
    // ^C, ^\ and ^Z to a command, then the end by hand. A shell that has not yet said anything may not yet have chosen what
    // signals mean to it, and a command that does not yet run gets none.
    let mut shown = Vec::new();
    for (number, (key, ends)) in [(b"\x03", true), (b"\x1c", true), (b"\x1a", false)].into_iter().enumerate()
    {
        terminal.input.write_all(format!("echo be''gun{number}\n").as_bytes()).await.unwrap();
        let begun = format!("begun{number}");
        let said = async {
            while !String::from_utf8_lossy(&shown).contains(&begun) {
                assert!(terminal.output.read_buf(&mut shown).await.unwrap() > 0);
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(30), said).await;
        assert!(in_time.is_ok(), "{}", String::from_utf8_lossy(&shown));
        let marker = Marker::new();
        terminal.input.write_all(format!("sleep {marker}\n").as_bytes()).await.unwrap();
        let sleeper = marker.sleeper().await;
        terminal.input.write_all(key).await.unwrap();
        let state = || {
            let status = std::fs::read_to_string(format!("/proc/{sleeper}/status")).unwrap_or_default();
            status.lines().find_map(|line| line.strip_prefix("State:\t")).map(|state| state[..1].to_owned())
        };
        let expected = if ends { None } else { Some("T".to_owned()) };
        assert!(until(10.0, || state() == expected).await, "{key:?}: {:?}", state());
    }
    terminal.input.write_all(b"kill -9 0\n").await.unwrap();
    let ending =
        tokio::time::timeout(Duration::from_secs(10), terminal.control.wait()).await.unwrap().unwrap();
    assert_eq!(ending, Ending::Signalled(9));
    assert_eq!(sandbox.run("echo alive").await, Said::ok("alive\n"));
    let after = sandbox.request(program(&["true"])).await;
    assert_eq!(after.ending, Ending::Exited(0));
}
