//! Texts of flags, variables and files as typed values. Every function says what is wrong in words that fit behind the
//! name of the flag.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ringfence::pool::MAX_SIZE;
use ringfence::{ByteSize, CommandHandle, Cpus, GuestPath, Handle, OutputLimit, Pids, SandboxSpec, Timeout};

/// Parses `30`, `0.5`, `30s`, `2m`, `1h 30m`; refuses what is not positive and finite (P22, P23).
pub(crate) fn timeout(text: &str) -> Result<Timeout, String> {
    let timeout = match text.parse::<f64>() {
        Ok(seconds) => Timeout::from_secs_f64(seconds),
        Err(_) => Timeout::new(words(text)?),
    };
    timeout.map_err(|_| {
        let days = Timeout::MAX.as_secs() / (24 * 60 * 60);
        format!(
            "a time is longer than 0 and at most {days}d, not {text:?}; a number without a unit is seconds"
        )
    })
}

/// Parses a duration as [`timeout`] does, for a lifetime.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    timeout(text).map(Timeout::get)
}

fn words(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| {
        format!("{text:?} is not a duration such as 30 (seconds), 0.5, 30s, 2m, 1d or \"1h 30m\"")
    })
}

/// Parses a size such as `512MiB`.
pub(crate) fn size(text: &str) -> Result<ByteSize, String> {
    core(text)
}

/// Parses a number of processors.
pub(crate) fn cpus(text: &str) -> Result<Cpus, String> {
    core(text)
}

/// Parses a number of processes.
pub(crate) fn pids(text: &str) -> Result<Pids, String> {
    core(text)
}

/// Parses how much of each stream is kept.
pub(crate) fn output_limit(text: &str) -> Result<ByteSize, String> {
    let size = size(text)?;
    output_limit_of(size)?;
    Ok(size)
}

/// Returns the size as an output limit.
pub(crate) fn output_limit_of(size: ByteSize) -> Result<OutputLimit, String> {
    let bytes = usize::try_from(size.get()).unwrap_or(usize::MAX);
    OutputLimit::new(bytes).map_err(|error| error.message().to_owned())
}

/// Parses how many sandboxes are held ready.
pub(crate) fn pool(text: &str) -> Result<usize, String> {
    let fault = || format!("{text:?} is not a number of sandboxes from 0 to {MAX_SIZE}");
    text.parse().ok().filter(|size| *size <= MAX_SIZE).ok_or_else(fault)
}

/// Parses the name of an MCP server: what every client takes in the names it makes of it.
pub(crate) fn server_name(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if text.is_empty() || text.len() > 64 || !text.bytes().all(fits) {
        return Err("a name has 1 to 64 letters, digits, - and _".to_owned());
    }
    Ok(text.to_owned())
}

fn core<T: FromStr<Err = ringfence::Error>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: ringfence::Error| error.message().to_owned())
}

/// Parses the path of a working directory in the sandbox.
pub(crate) fn workdir(text: &str) -> Result<String, String> {
    let accepted = SandboxSpec::new().with_workdir(text).map_err(|error| error.message().to_owned())?;
    Ok(accepted.workdir().unwrap_or_default().to_owned())
}

/// Parses a path in the sandbox.
pub(crate) fn guest_path(text: OsString) -> Result<GuestPath, String> {
    GuestPath::new(text.into_vec()).map_err(|error| error.message().to_owned())
}

/// A variable for the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EnvAssignment {
    /// `NAME=VALUE`
    Given(String, String),
    /// `NAME`: the value is taken from our own environment.
    Inherited(String),
}

/// Parses `NAME=VALUE` or `NAME`. Which names are acceptable is the contract's business.
pub(crate) fn env_assignment(text: &str) -> Result<EnvAssignment, String> {
    match text.split_once('=') {
        Some((name, value)) => Ok(EnvAssignment::Given(name.to_owned(), value.to_owned())),
        None if text.is_empty() => Err("is empty; give NAME=VALUE or NAME".to_owned()),
        None => Ok(EnvAssignment::Inherited(text.to_owned())),
    }
}

/// Parses a handle; says what was probably meant where it is none.
pub(crate) fn handle(text: &str) -> Result<Handle, String> {
    text.parse().map_err(|error: ringfence::Error| told(&error))
}

fn told(error: &ringfence::Error) -> String {
    match error.hint_text() {
        Some(hint) => format!("{}; try {hint}", error.message()),
        None => error.message().to_owned(),
    }
}

/// Parses a handle where a program may have been meant.
pub(crate) fn shell_handle(text: &str) -> Result<Handle, String> {
    handle(text).map_err(|why| format!("{why}; a program goes behind `--`: `ringfence shell -- CMD...`"))
}

/// Of what a log is wanted: the form of the argument tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Logged {
    /// What happened to a sandbox.
    Sandbox(Handle),
    /// What a command in the background of one printed.
    Command(CommandHandle),
}

/// Parses the handle of a sandbox, or of a command in one.
pub(crate) fn logged(text: &str) -> Result<Logged, String> {
    match text.parse() {
        Ok(command) if text.contains('/') => Ok(Logged::Command(command)),
        _ => handle(text).map(Logged::Sandbox),
    }
}

/// Parses the handle of a command in the background.
pub(crate) fn command_handle(text: &str) -> Result<CommandHandle, String> {
    text.parse().map_err(|error: ringfence::Error| told(&error))
}

/// Parses the handle of a command to be ended, where a sandbox may have been meant.
pub(crate) fn killed(text: &str) -> Result<CommandHandle, String> {
    command_handle(text).map_err(|why| match handle(text) {
        Ok(sandbox) => format!("{why}; `ringfence rm {sandbox}` ends the sandbox with everything in it"),
        Err(_) => why,
    })
}

/// Parses how long something is waited for, which may be not at all.
pub(crate) fn patience(text: &str) -> Result<Duration, String> {
    if text.trim() == "0" { Ok(Duration::ZERO) } else { timeout(text).map(Timeout::get) }
}

/// The signals that are sent by name, by their numbers in a sandbox, which is Linux wherever this is.
const SIGNALS: [(&str, i32); 18] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("CONT", 18),
    ("STOP", 19),
    ("WINCH", 28),
];

/// Parses a signal, by name or number.
pub(crate) fn signal(text: &str) -> Result<i32, String> {
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    if let Some((_, number)) = SIGNALS.iter().find(|(known, _)| *known == name) {
        return Ok(*number);
    }
    match text.parse() {
        Ok(number @ 1..=64) => Ok(number),
        _ => Err("give a number from 1 to 64, or a name such as TERM, INT, HUP, USR1, STOP".to_owned()),
    }
}

/// A label for a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Label {
    /// The name.
    pub(crate) name: String,
    /// The value.
    pub(crate) value: String,
}

/// Parses `NAME=VALUE`. Which names are acceptable is the contract's business.
pub(crate) fn label(text: &str) -> Result<Label, String> {
    match text.split_once('=') {
        Some(("", _)) | None => Err("give NAME=VALUE".to_owned()),
        Some((name, value)) => Ok(Label { name: name.to_owned(), value: value.to_owned() }),
    }
}

/// What is looked for among labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LabelFilter {
    name: String,
    /// Any value will do where there is none.
    value: Option<String>,
}

impl LabelFilter {
    /// Whether these labels fit.
    pub(crate) fn fits(&self, labels: &BTreeMap<&str, &str>) -> bool {
        let found = labels.get(self.name.as_str());
        found.is_some_and(|found| self.value.as_ref().is_none_or(|value| value == found))
    }
}

/// Parses `NAME=VALUE` or `NAME`.
pub(crate) fn label_filter(text: &str) -> Result<LabelFilter, String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, None),
    };
    if name.is_empty() {
        return Err("give NAME or NAME=VALUE".to_owned());
    }
    Ok(LabelFilter { name: name.to_owned(), value })
}

/// Something that goes into the sandbox before the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Input {
    /// A file or directory here.
    pub(crate) source: PathBuf,
    /// Where it goes in the sandbox; relative paths start at the working directory.
    pub(crate) target: GuestPath,
}

/// Parses `SRC:DST` or `SRC`, which goes into the working directory under its own name. The last colon counts.
pub(crate) fn input(text: OsString) -> Result<Input, String> {
    let bytes = text.into_vec();
    let whole = bytes.clone();
    let (source, target) = match bytes.iter().rposition(|byte| *byte == b':') {
        Some(colon) => (bytes[..colon].to_vec(), bytes[colon + 1..].to_vec()),
        None => {
            let path = PathBuf::from(OsString::from_vec(bytes));
            let name = path.file_name().map(OsStr::as_bytes).unwrap_or_default().to_vec();
            (path.into_os_string().into_vec(), name)
        }
    };
    if source.is_empty() || target.is_empty() {
        let text = String::from_utf8_lossy(&whole);
        return Err(if text.is_empty() || text.contains(':') {
            "needs a source and, behind a colon, a target: SRC:DST".to_owned()
        } else {
            format!("it has no name of its own to go under; give the target too, such as {text}:.")
        });
    }
    let target = GuestPath::new(target).map_err(|error| error.message().to_owned())?;
    Ok(Input { source: PathBuf::from(OsString::from_vec(source)), target })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_22_timeouts_are_positive_and_finite() {
        let good =
            [("30", 30.0), ("0.5", 0.5), ("30s", 30.0), ("2m", 120.0), ("1h 30m", 5400.0), ("250ms", 0.25)];
        for (text, seconds) in good {
            assert_eq!(timeout(text).unwrap().get(), Duration::from_secs_f64(seconds), "{text}");
        }
        let bad = [
            "0", "-0", "0s", "-1", "-1s", "NaN", "nan", "inf", "-inf", "1e18", "366d", "1e-400", "", "x",
            "5 x",
        ];
        for text in bad {
            assert!(timeout(text).is_err(), "{text}");
        }
        let told = "a time is longer than 0 and at most 365d, not \"-1\"; a number without a unit is seconds";
        assert_eq!(timeout("-1").unwrap_err(), told);
    }

    #[test]
    fn the_form_of_a_handle_tells_a_sandbox_from_a_command_in_one() {
        assert_eq!(logged("local:sb-1"), Ok(Logged::Sandbox("local:sb-1".parse().unwrap())));
        assert_eq!(logged("local:sb-1/c7"), Ok(Logged::Command("local:sb-1/c7".parse().unwrap())));
        for bad in ["", "None", "sb-1", "sb-1/c1", "local:sb-1/x", "local:sb-1/", "local:/c1"] {
            assert!(logged(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_signal_has_a_name_or_a_number() {
        for (text, number) in [("TERM", 15), ("sigterm", 15), ("15", 15), ("Kill", 9), ("1", 1), ("64", 64)] {
            assert_eq!(signal(text), Ok(number), "{text}");
        }
        for bad in ["", "SIG", "0", "65", "-9", "NOPE", "9.0"] {
            assert!(signal(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn patience_may_be_none() {
        assert_eq!(patience("0"), Ok(Duration::ZERO));
        assert_eq!(patience("2m"), Ok(Duration::from_secs(120)));
        assert!(patience("-1").is_err());
    }

    #[test]
    fn labels_are_split_at_the_first_equals_sign() {
        let label = |name: &str, value: &str| Label { name: name.to_owned(), value: value.to_owned() };
        assert_eq!(super::label("a=b=c"), Ok(label("a", "b=c")));
        assert_eq!(super::label("a="), Ok(label("a", "")));
        for bad in ["", "a", "=b", "="] {
            assert_eq!(super::label(bad), Err("give NAME=VALUE".to_owned()), "{bad}");
        }
        let labels = BTreeMap::from([("a", "b=c"), ("e", "")]);
        for (filter, fits) in [
            ("a", true),
            ("a=b=c", true),
            ("a=", false),
            ("e", true),
            ("e=", true),
            ("x", false),
            ("x=", false),
        ] {
            assert_eq!(label_filter(filter).unwrap().fits(&labels), fits, "{filter}");
        }
        assert!(label_filter("").is_err() && label_filter("=b").is_err());
    }

    #[test]
    fn an_input_is_split_at_its_last_colon() {
        let parse = |text: &str| {
            input(text.into())
                .map(|input| (input.source.display().to_string(), input.target.to_string()))
                .map_err(|_| ())
        };
        let pair = |a: &str, b: &str| Ok((a.to_owned(), b.to_owned()));
        assert_eq!(parse("a.py:b.py"), pair("a.py", "b.py"));
        assert_eq!(parse("dir/a.py"), pair("dir/a.py", "a.py"));
        assert_eq!(parse("a:b:/tmp/c"), pair("a:b", "/tmp/c"));
        for bad in ["", ":", "a:", ":b", "/", ".."] {
            assert_eq!(parse(bad), Err(()), "{bad}");
        }
    }

    #[test]
    fn an_assignment_keeps_everything_behind_the_first_equals_sign() {
        assert_eq!(env_assignment("A=b=c\n"), Ok(EnvAssignment::Given("A".into(), "b=c\n".into())));
        assert_eq!(env_assignment("A"), Ok(EnvAssignment::Inherited("A".into())));
        assert_eq!(env_assignment("=x"), Ok(EnvAssignment::Given(String::new(), "x".into())));
        assert!(env_assignment("").is_err());
    }
}
