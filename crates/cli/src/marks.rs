//! What the tags of a sandbox say.

use std::collections::BTreeMap;
use std::time::SystemTime;

use ringfence::attach::RESERVED_PREFIX;
use ringfence::{Tags, claim};

/// Whose a sandbox is, who has it, and how it is marked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Marks<'a> {
    /// Who may attach.
    pub(crate) owner: Option<&'a str>,
    /// Who has a claim that runs.
    pub(crate) holder: Option<Holder<'a>>,
    /// The labels of its spec.
    pub(crate) labels: BTreeMap<&'a str, &'a str>,
}

/// Who has a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holder<'a> {
    /// The name.
    pub(crate) name: &'a str,
    /// Until when; `None` where that is not said or not readable, which does not free the sandbox.
    pub(crate) until: Option<SystemTime>,
}

impl<'a> Marks<'a> {
    /// Reads the tags as they count at `now`: a claim that has run out holds nothing.
    pub(crate) fn read(tags: &'a Tags, now: SystemTime) -> Self {
        let text = |name: &str| tags.get(name).map(String::as_str);
        let until = text(claim::LEASE_UNTIL).and_then(claim::read_time);
        let holder = text(claim::HOLDER).map(|name| Holder { name, until });
        let labels = tags.iter().filter(|(name, _)| !name.starts_with(RESERVED_PREFIX));
        Self {
            owner: text(claim::OWNER),
            holder: holder.filter(|holder| holder.until.is_none_or(|until| until > now)),
            labels: labels.map(|(name, value)| (name.as_str(), value.as_str())).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn tags(pairs: &[(&str, &str)]) -> Tags {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn what_is_ours_among_the_tags_is_told_from_labels() {
        let all = tags(&[
            ("ringfence_owner", "dag/run"),
            ("ringfence_holder", "dag/run/task"),
            ("ringfence_lease_until", "100"),
            ("ringfence_fence", "3"),
            ("job", "build"),
        ]);
        let marks = Marks::read(&all, at(99));
        let holder = Holder { name: "dag/run/task", until: Some(at(100)) };
        let whole = Marks {
            owner: Some("dag/run"),
            holder: Some(holder),
            labels: BTreeMap::from([("job", "build")]),
        };
        assert_eq!(marks, whole);
        assert_eq!(Marks::read(&Tags::new(), at(0)).holder, None);
    }

    #[test]
    fn s_54_a_claim_that_has_run_out_holds_nothing_and_one_without_an_end_holds() {
        for (until, holds) in [("99", false), ("100", false), ("100.5", true), ("soon", true), ("-1", true)] {
            let all = tags(&[("ringfence_holder", "h"), ("ringfence_lease_until", until)]);
            assert_eq!(Marks::read(&all, at(100)).holder.is_some(), holds, "{until}");
        }
        let endless = tags(&[("ringfence_holder", "h")]);
        assert_eq!(Marks::read(&endless, at(100)).holder, Some(Holder { name: "h", until: None }));
    }
}
