//! What many sandboxes of one launcher see alike, made once: the root with everything that is not theirs alone. Each gets a copy
//! of the mounts, which takes a fraction of making them, and shares what lies in them, which is read-only.
//!
//! Made for the second sandbox with the same view, since most owners make one; and only by a launcher that may mount, which is
//! root's. Where it cannot be made every sandbox makes its own root, as the first one does.

use alloc::vec::Vec;

use crate::setup;
use crate::sys::{Errno, Result, file, mount};
use crate::wire::ViewEntry;

/// Where it lies, in the launcher's own mount namespace and those of processes cloned from it: a directory that every machine has and
/// nobody here needs. Not on top of `/`: the kernel takes a process below that for one in a cage, which may make no user namespaces.
pub(crate) const PLACE: &[u8] = b"/sys/bus";

/// A root that was made in advance.
#[derive(Debug)]
struct Template {
    view: Vec<ViewEntry>,
    /// The host paths in it, as they were.
    sources: Vec<Source>,
}

/// A host path as it was: a system that is updated gives its name to another, or another content to what is copied.
#[derive(Debug, PartialEq, Eq)]
struct Source {
    identity: (u64, u64),
    changed: Option<(i64, i64)>,
}

/// The views that were asked for, and what was made of them.
#[derive(Debug, Default)]
pub(crate) struct Templates {
    last: Vec<ViewEntry>,
    made: Option<Template>,
    has_namespace: bool,
    outlook: Outlook,
}

/// After a failure that passes, at most so many sandboxes make their own root before it is tried again.
const MOST_PASSED: u32 = 64;

/// Whether it pays to try to make one.
#[derive(Debug, Default)]
enum Outlook {
    /// Nothing speaks against it.
    #[default]
    Good,
    /// It failed for a reason that may be gone: so many sandboxes are made without before the next try, and after that as many as `then`.
    Later { left: u32, then: u32 },
    /// This launcher may not make any.
    Never,
}

impl Outlook {
    /// Whether this sandbox is one to try it with.
    fn allows(&mut self) -> bool {
        match self {
            Self::Good | Self::Later { left: 0, .. } => true,
            Self::Later { left, .. } => {
                *left -= 1;
                false
            }
            Self::Never => false,
        }
    }

    /// What follows from a failure. What is forbidden or unknown to the kernel stays so; everything else may pass, and each failure in
    /// a row is tried again later than the one before.
    fn after(&self, failure: &Errno) -> Self {
        match (failure.0, self) {
            (libc::EPERM | libc::ENOSYS | libc::EINVAL, _) => Self::Never,
            (_, Self::Later { then, .. }) => {
                Self::Later { left: *then, then: then.saturating_mul(2).min(MOST_PASSED) }
            }
            // With the next one.
            _ => Self::Later { left: 0, then: 1 },
        }
    }
}

impl Templates {
    /// Whether there is a template for this view, made now if it pays.
    pub(crate) fn has(&mut self, view: &[ViewEntry]) -> bool {
        if !view.iter().all(is_the_systems) {
            return false;
        }
        let sources = identities(view);
        if self.made.as_ref().is_some_and(|made| made.view == view && sources.as_ref() == Ok(&made.sources)) {
            return true;
        }
        if self.last != view {
            self.last = view.to_vec();
            return false;
        }
        if !self.outlook.allows() {
            return false;
        }
        // What the reason of a failure is, the sandbox says that makes its own root.
        let made = sources.and_then(|sources| self.make(view, sources));
        self.outlook = made.as_ref().err().map_or(Outlook::Good, |failure| self.outlook.after(failure));
        made.is_ok()
    }

    fn make(&mut self, view: &[ViewEntry], sources: Vec<Source>) -> Result<()> {
        if !self.has_namespace {
            mount::own_namespace()?;
            self.has_namespace = true;
        }
        if self.made.take().is_some() {
            mount::detach(PLACE)?;
        }
        setup::make_template(view).map_err(|failure| failure.errno)?;
        self.made = Some(Template { view: view.to_vec(), sources });
        Ok(())
    }
}

/// Whether an entry shows what belongs to the system. What an operator shows besides may get mounts at any time, and a template, which is
/// private, and the launcher's own namespace would keep them from sandboxes.
fn is_the_systems(entry: &ViewEntry) -> bool {
    const PLACES: [&[u8]; 5] = [b"/usr", b"/etc/", b"/bin", b"/sbin", b"/lib"];
    match entry {
        ViewEntry::Bind(_, source) => PLACES.iter().any(|place| source.starts_with(place)),
        _ => true,
    }
}

fn identities(view: &[ViewEntry]) -> Result<Vec<Source>> {
    let sources = view.iter().filter_map(|entry| match entry {
        // Device nodes are the kernel's, and stay.
        ViewEntry::Bind(_, source) => Some((source, false)),
        ViewEntry::Copy(_, source) => Some((source, true)),
        _ => None,
    });
    sources
        .map(|(source, is_copied)| {
            let found = file::open(None, source, libc::O_PATH, 0)?;
            let metadata = file::metadata(found.as_fd())?;
            Ok(Source { identity: metadata.identity, changed: is_copied.then_some(metadata.changed) })
        })
        .collect()
}
