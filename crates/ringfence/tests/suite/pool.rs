//! Sandboxes made in advance, over the backend of this machine.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ringfence::{
    Backend, BackendSettings, CommandRequest, GuestPath, OutputLimit, Pool, Registry, SandboxId, SandboxSpec,
    Timeout, claim,
};

/// What commands can see of a sandbox, one question each. What differs from one fresh sandbox to the next is left out.
const QUESTIONS: [&str; 12] = [
    "env | sort",
    "pwd; id; umask; hostname; nproc; ulimit -a",
    "for stat in /proc/[0-9]*/stat; do cut -d ' ' -f 1,2,4 $stat; done 2>/dev/null",
    "for line in /proc/[0-9]*/cmdline; do echo $line; tr '\\0' ' ' <$line; done 2>/dev/null",
    "echo $$; cut -d ' ' -f 5 /proc/loadavg",
    "cut -d ' ' -f 4- /proc/self/mountinfo | sed 's/,[ug]id=[0-9]*//g' | sort",
    "grep -v -e ctxt -e Vm -e Rss -e SigQ -e NSpid -e Hugetlb /proc/self/status",
    "ls /proc/self/fd",
    "find / -xdev -printf '%p %y %m %U %G %s %l\\n' | sort",
    "find /dev /home /run /tmp /workspace -printf '%p %y %m %U %G %l\\n' 2>/dev/null | sort",
    "df -k --output=target,size,used /tmp /workspace /dev 2>/dev/null",
    "sed 's/sb-[0-9a-f]*//' /proc/self/cgroup; cat /proc/net/dev",
];

fn spec() -> SandboxSpec {
    let text = r#"{"env": {"A": "1"}, "limits": {"pids": 64, "memory": "256MiB"}, "lifetime_seconds": 600, "idle_seconds": 300}"#;
    serde_json::from_str(text).unwrap()
}

async fn asked(backend: &dyn Backend, sandbox: &SandboxId, question: &str) -> String {
    let timeout = Timeout::new(Duration::from_secs(60)).unwrap();
    let request = CommandRequest::shell(question, timeout, OutputLimit::new(16 << 20).unwrap());
    let result = backend.run_command(sandbox, request).await.unwrap();
    assert!(!result.stdout.bytes.is_empty(), "{question} has no answer: {result:?}");
    format!("{:?}\n{}", result.ending, String::from_utf8_lossy(&result.stdout.bytes))
}

/// All that is seen of a sandbox by who has it, from outside, before anything was done in it, and from inside.
async fn seen(backend: &dyn Backend, sandbox: &SandboxId) -> Vec<String> {
    let mut seen = Vec::new();
    if let Some(background) = backend.background() {
        seen.push(format!("{:?}", background.list_commands(sandbox).await.unwrap()));
    }
    for question in QUESTIONS {
        seen.push(format!("{question}: {}", asked(backend, sandbox, question).await));
    }
    seen
}

#[tokio::test]
async fn a_sandbox_from_the_pool_is_like_one_that_was_just_made() {
    let local = Registry::new(BackendSettings::default()).open("local").unwrap();
    // The first of a process is made in another way than all that follow.
    let first = local.create(&spec()).await.unwrap().id;
    local.destroy(&first).await.unwrap();
    let pool = Pool::new(Arc::clone(&local), spec(), NonZeroUsize::MIN).unwrap();
    pool.fill();
    while pool.ready() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Its clocks would be behind by this much, had they run.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let fresh = local.create(&spec()).await.unwrap();
    let before = pool.ready();
    let pooled = pool.create(&spec()).await.unwrap();
    assert_eq!(before, 1, "it was made in advance");

    let start = Instant::now();
    let remaining = async |sandbox: &SandboxId| {
        let tagged = local.attachable().unwrap().tags(sandbox).await.unwrap();
        claim::remaining(&tagged.tags, SystemTime::now()).unwrap()
    };
    let (fresh_remaining, pooled_remaining) = (remaining(&fresh.id).await, remaining(&pooled.id).await);
    // Tags have times in milliseconds.
    let between = start.elapsed() + Duration::from_millis(2);
    assert!(pooled_remaining + between >= fresh_remaining, "{pooled_remaining:?} after {fresh_remaining:?}");

    // It says when each was made, which is not now.
    assert_eq!(fresh.statement.rows, pooled.statement.rows);
    let (like, seen) = (seen(&*local, &fresh.id).await, seen(&pool, &pooled.id).await);
    for (like, seen) in like.iter().zip(&seen) {
        assert_eq!(like, seen);
    }
    // What is seen is seen: a file that somebody left would be.
    let path = GuestPath::new("left").unwrap();
    local.write_file(&pooled.id, &path, b"x").await.unwrap();
    assert_ne!(asked(&*local, &pooled.id, QUESTIONS[9]).await, asked(&*local, &fresh.id, QUESTIONS[9]).await);

    pool.close().await;
    for id in [&fresh.id, &pooled.id] {
        local.destroy(id).await.unwrap();
    }
}
