//! Every environment variable that ringfence reads, and the only code that reads any.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::failure::{Failure, Result};

/// The prefix of all names that are ours.
const PREFIX: &str = "RINGFENCE_";
/// Names under this prefix belong to test suites and are left alone.
const TEST_PREFIX: &str = "RINGFENCE_TEST_";

/// Which backend.
pub(crate) const BACKEND: &str = "RINGFENCE_BACKEND";
/// Timeout of `run`.
pub(crate) const TIMEOUT: &str = "RINGFENCE_TIMEOUT";
/// What `run --json` keeps of each stream.
pub(crate) const OUTPUT_LIMIT: &str = "RINGFENCE_OUTPUT_LIMIT";
/// How many sandboxes `mcp` holds ready.
pub(crate) const POOL: &str = "RINGFENCE_POOL";
/// Memory ceiling.
pub(crate) const MEMORY: &str = "RINGFENCE_MEMORY";
/// CPU ceiling.
pub(crate) const CPUS: &str = "RINGFENCE_CPUS";
/// Process ceiling.
pub(crate) const PIDS: &str = "RINGFENCE_PIDS";
/// Storage ceiling.
pub(crate) const DISK: &str = "RINGFENCE_DISK";
/// Working directory in the sandbox.
pub(crate) const WORKDIR: &str = "RINGFENCE_WORKDIR";
/// Lifetime of the sandbox.
pub(crate) const LIFETIME: &str = "RINGFENCE_LIFETIME";
/// How long the sandbox may go unused.
pub(crate) const IDLE: &str = "RINGFENCE_IDLE";
/// Host names that may be reached, separated by commas.
pub(crate) const ALLOW_HOST: &str = "RINGFENCE_ALLOW_HOST";
/// Address ranges that may be reached, separated by commas.
pub(crate) const ALLOW_CIDR: &str = "RINGFENCE_ALLOW_CIDR";
/// `1` opens the network.
pub(crate) const OPEN_NETWORK: &str = "RINGFENCE_OPEN_NETWORK";
/// The local backend's shell.
pub(crate) const SHELL: &str = "RINGFENCE_SHELL";
/// Host paths the local backend shows read-only, separated by colons.
pub(crate) const READ_ONLY_PATHS: &str = "RINGFENCE_READ_ONLY_PATHS";
/// `1` leaves the project file unread.
pub(crate) const IGNORE_PROJECT_FILE: &str = "RINGFENCE_IGNORE_PROJECT_FILE";
/// What goes to the log: a level, or targets with levels such as `ringfence_toolset=debug,warn`.
pub(crate) const LOG: &str = "RINGFENCE_LOG";

/// All names, for help and for telling a misspelt one.
pub(crate) const NAMES: [&str; 18] = [
    BACKEND,
    TIMEOUT,
    OUTPUT_LIMIT,
    POOL,
    MEMORY,
    CPUS,
    PIDS,
    DISK,
    WORKDIR,
    LIFETIME,
    IDLE,
    ALLOW_HOST,
    ALLOW_CIDR,
    OPEN_NETWORK,
    SHELL,
    READ_ONLY_PATHS,
    IGNORE_PROJECT_FILE,
    LOG,
];

/// Those whose empty value is refused: whoever set it believes that there is a ceiling.
const CEILINGS: [&str; 8] = [TIMEOUT, OUTPUT_LIMIT, MEMORY, CPUS, PIDS, DISK, LIFETIME, IDLE];

/// What the environment says.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    ours: BTreeMap<&'static str, String>,
    home: Option<PathBuf>,
    config_home: Option<PathBuf>,
    runtime_home: Option<PathBuf>,
    /// Whether the terminal is said to understand UTF-8.
    pub(crate) utf8: bool,
    /// What kind of terminal this is.
    pub(crate) term: Option<String>,
}

impl Environment {
    /// Reads the environment.
    ///
    /// A `RINGFENCE_` name that is not a setting is refused: a misspelt ceiling that is passed over would be no ceiling.
    pub(crate) fn read() -> Result<Self> {
        Self::from_variables(std::env::vars_os())
    }

    fn from_variables(variables: impl Iterator<Item = (OsString, OsString)>) -> Result<Self> {
        let mut environment = Self::default();
        let mut locale = [None, None, None];
        for (name, value) in variables {
            let Some(name) = name.to_str() else { continue };
            match name {
                "HOME" => environment.home = absolute(value),
                "XDG_CONFIG_HOME" => environment.config_home = absolute(value),
                // Not passed over where it is relative, as the rules of XDG have it: sandboxes would be sought in another place than the
                // one that was meant. The backend refuses it where it is needed.
                "XDG_RUNTIME_DIR" => {
                    environment.runtime_home = Some(value.into()).filter(|path: &PathBuf| path != "")
                }
                "TERM" => environment.term = value.into_string().ok().filter(|term| !term.is_empty()),
                "LC_ALL" => locale[0] = value.into_string().ok(),
                "LC_CTYPE" => locale[1] = value.into_string().ok(),
                "LANG" => locale[2] = value.into_string().ok(),
                _ if name.starts_with(PREFIX) && !name.starts_with(TEST_PREFIX) => {
                    let known =
                        NAMES.into_iter().find(|known| *known == name).ok_or_else(|| misspelt(name))?;
                    let value = value
                        .into_string()
                        .map_err(|_| Failure::new(format!("the value of {known} is not UTF-8")))?;
                    if value.is_empty() && CEILINGS.contains(&known) {
                        return Err(Failure::new(format!(
                            "{known} is set but empty, which is no limit at all"
                        ))
                        .hint(format!("give it a value, or unset {known}")));
                    }
                    if !value.is_empty() {
                        environment.ours.insert(known, value);
                    }
                }
                _ => {}
            }
        }
        let locale = locale.into_iter().flatten().find(|value| !value.is_empty()).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        environment.utf8 = locale.contains("utf-8") || locale.contains("utf8");
        Ok(environment)
    }

    /// Returns one of [`NAMES`]; unset and empty are the same where empty is not refused.
    pub(crate) fn get(&self, name: &'static str) -> Option<&str> {
        self.ours.get(name).map(String::as_str)
    }

    /// Returns a variable of the person's own, to be passed into a sandbox by name.
    pub(crate) fn foreign(name: &str) -> Option<OsString> {
        // An empty name or one with `=` or NUL makes the standard library panic on some systems.
        (!name.is_empty() && !name.contains(['=', '\0'])).then(|| std::env::var_os(name)).flatten()
    }

    /// Returns the home directory.
    pub(crate) fn home(&self) -> Option<&PathBuf> {
        self.home.as_ref()
    }

    /// Returns where programs keep this user's settings.
    pub(crate) fn config_folder(&self) -> Option<PathBuf> {
        match (&self.config_home, &self.home) {
            (Some(folder), _) => Some(folder.clone()),
            (None, Some(home)) => Some(home.join(".config")),
            (None, None) => None,
        }
    }

    /// Returns where this login's sandboxes are to be found; `None` where the system names no place for such things.
    pub(crate) fn runtime_folder(&self) -> Option<PathBuf> {
        Some(self.runtime_home.as_ref()?.join("ringfence"))
    }

    /// Returns where the user's settings file would be.
    pub(crate) fn user_file(&self) -> Option<PathBuf> {
        Some(self.config_folder()?.join("ringfence").join("config.toml"))
    }
}

/// The XDG rules: a path that is not absolute is to be ignored.
fn absolute(value: OsString) -> Option<PathBuf> {
    let path = PathBuf::from(value);
    path.is_absolute().then_some(path)
}

fn misspelt(name: &str) -> Failure {
    let failure = Failure::new(format!("the environment variable {name} is not a setting"));
    match NAMES.into_iter().find(|known| is_near(known, name)) {
        Some(known) => failure.hint(known),
        None => failure.hint("`ringfence config` shows every setting and its variable"),
    }
}

/// Whether the names differ in one letter, or in two neighbours that changed places.
fn is_near(a: &str, b: &str) -> bool {
    let same = |(x, y): (u8, u8)| x == y;
    let prefix = a.bytes().zip(b.bytes()).take_while(|pair| same(*pair)).count();
    let (a, b) = (&a.as_bytes()[prefix..], &b.as_bytes()[prefix..]);
    match (a, b) {
        ([_, a @ ..], [_, b @ ..]) if a == b => true,
        ([_, rest @ ..], other) | (other, [_, rest @ ..]) if rest == other => true,
        ([a0, a1, a @ ..], [b0, b1, b @ ..]) => a0 == b1 && a1 == b0 && a == b,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Environment> {
        Environment::from_variables(variables.iter().map(|(name, value)| (name.into(), value.into())))
    }

    #[test]
    fn a_misspelt_setting_is_refused_with_the_right_name() {
        let error = read(&[("RINGFENCE_MEMROY", "1g")]).unwrap_err();
        assert_eq!(error.to_string(), "the environment variable RINGFENCE_MEMROY is not a setting");
        for wrong in ["RINGFENCE_MEMROY", "RINGFENCE_MEMOR", "RINGFENCE_MEMORYY", "RINGFENCE_NEMORY"] {
            assert_eq!(read(&[(wrong, "1g")]).unwrap_err().hint_text(), Some(MEMORY), "{wrong}");
        }
        assert!(read(&[("RINGFENCE_SOMETHING", "1")]).unwrap_err().hint_text().unwrap().contains("config"));
        assert!(read(&[("RINGFENCE_TEST_ANYTHING", "1")]).is_ok());
    }

    #[test]
    fn an_empty_ceiling_is_refused_and_other_empty_values_are_unset() {
        for name in CEILINGS {
            let told = format!("{name} is set but empty, which is no limit at all");
            assert_eq!(read(&[(name, "")]).unwrap_err().to_string(), told);
        }
        assert_eq!(read(&[(LOG, "")]).unwrap().get(LOG), None);
    }

    #[test]
    fn the_user_file_follows_the_xdg_rules() {
        let file = |variables| read(variables).unwrap().user_file().map(|path| path.display().to_string());
        assert_eq!(file(&[]), None);
        assert_eq!(file(&[("HOME", "/h")]).unwrap(), "/h/.config/ringfence/config.toml");
        assert_eq!(file(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "/x")]).unwrap(), "/x/ringfence/config.toml");
        assert_eq!(
            file(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "rel")]).unwrap(),
            "/h/.config/ringfence/config.toml"
        );
    }

    #[test]
    fn the_runtime_folder_is_what_the_variable_says_also_where_that_will_be_refused() {
        let folder = |variables| read(variables).unwrap().runtime_folder();
        assert_eq!(folder(&[]), None);
        assert_eq!(folder(&[("XDG_RUNTIME_DIR", "")]), None);
        assert_eq!(folder(&[("XDG_RUNTIME_DIR", "run")]), Some(PathBuf::from("run/ringfence")));
        assert_eq!(
            folder(&[("XDG_RUNTIME_DIR", "/run/user/1")]),
            Some(PathBuf::from("/run/user/1/ringfence"))
        );
    }

    #[test]
    fn the_locale_that_counts_is_the_first_one_set() {
        let utf8 = |variables| read(variables).unwrap().utf8;
        assert!(utf8(&[("LANG", "C.UTF-8")]));
        assert!(utf8(&[("LANG", "C"), ("LC_ALL", "en_US.utf8")]));
        assert!(!utf8(&[("LANG", "C.UTF-8"), ("LC_ALL", "C")]));
        assert!(utf8(&[("LANG", "C.UTF-8"), ("LC_ALL", "")]));
        assert!(!utf8(&[]));
    }
}
