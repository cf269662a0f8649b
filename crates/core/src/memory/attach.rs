//! The recording backend as one whose sandboxes others find and hold.

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::{Operation, RecordingBackend};
use crate::attach::{
    Attachable, DEFAULT_KEPT_LIFETIME, Inspection, Leftover, MAX_TAG_BYTES, Reach, SandboxInfo, SandboxList,
    Tagged, Tags, Usage, tag_bytes,
};
use crate::backend::{Created, SandboxId};
use crate::error::{Error, ErrorKind, Result, Retry};
use crate::spec::SandboxSpec;

const SET_TAGS: &str = "set the tags";

#[async_trait]
impl Attachable for RecordingBackend {
    async fn create_reachable(&self, spec: &SandboxSpec, reach: Reach) -> Result<Created> {
        let default = (reach == Reach::Kept).then_some(DEFAULT_KEPT_LIFETIME);
        self.provision(spec, reach, spec.lifetime().or(default), false).await
    }

    async fn tags(&self, sandbox: &SandboxId) -> Result<Tagged> {
        let (now, wall) = (Instant::now(), self.clock().now());
        let mut state = self.state();
        state.check(Operation::Tags)?;
        let found = self.look(&mut state, "read the tags", sandbox)?;
        Ok(found.tagged(now, wall))
    }

    async fn set_tags(&self, sandbox: &SandboxId, expected: u64, tags: &Tags) -> Result<u64> {
        let mut state = self.state();
        state.check(Operation::SetTags)?;
        let mut rival = state.rival.take();
        let found = self.look(&mut state, SET_TAGS, sandbox)?;
        if let Some(rival) = &mut rival
            && rival(&mut found.tagged.tags)
        {
            found.tagged.version += 1;
        }
        let bytes = tag_bytes(tags);
        let written = if bytes > MAX_TAG_BYTES {
            let fault = format!("tags have {bytes} bytes, at most {MAX_TAG_BYTES} are accepted");
            Err(Error::new(ErrorKind::InvalidArgument, &self.name, SET_TAGS, fault))
        } else if found.tagged.version != expected {
            let fault = format!("they have the version {}, not {expected}", found.tagged.version);
            Err(Error::new(ErrorKind::Conflict, &self.name, SET_TAGS, fault)
                .context("sandbox", sandbox.as_str())
                .retry(Retry::Safe))
        } else {
            found.tagged = Tagged { version: expected + 1, tags: tags.clone() };
            Ok(expected + 1)
        };
        state.rival = rival;
        written
    }

    async fn list(&self) -> Result<SandboxList> {
        let (now, wall) = (Instant::now(), self.clock().now());
        let mut state = self.state();
        state.bury(now);
        let reachable = state.sandboxes.iter().filter(|(_, sandbox)| sandbox.reach > Reach::Private);
        let mut listed: Vec<SandboxInfo> =
            reachable.map(|(id, sandbox)| sandbox.info(id, now, wall)).collect();
        listed.sort_by_key(|info| info.created_at);
        Ok(SandboxList { sandboxes: listed, silent: Vec::new() })
    }

    async fn inspect(&self, sandbox: &SandboxId) -> Result<Inspection> {
        let (now, wall) = (Instant::now(), self.clock().now());
        let mut state = self.state();
        state.check(Operation::Inspect)?;
        let found = self.look(&mut state, "inspect the sandbox", sandbox)?;
        Ok(Inspection {
            info: found.info(sandbox, now, wall),
            spec: found.spec.clone(),
            statement: found.statement.clone(),
            usage: Usage::default(),
            processes: Vec::new(),
        })
    }

    async fn renew(&self, sandbox: &SandboxId, lifetime: Option<Duration>) -> Result<Duration> {
        let mut state = self.state();
        let found = self.look(&mut state, "renew the sandbox", sandbox)?;
        found.renew(lifetime, Instant::now()).ok_or_else(|| {
            let fault = "the sandbox has no lifetime, and none was given";
            Error::new(ErrorKind::InvalidArgument, &self.name, "renew the sandbox", fault)
        })
    }

    async fn prune(&self, _dry_run: bool) -> Result<Vec<Leftover>> {
        Ok(Vec::new())
    }
}
