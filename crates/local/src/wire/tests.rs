//! Every message survives, and no part of one is taken for one.

use super::agent::{FILE_FAULTS, NOT_STARTED, Seen};
use super::codec::Malformed;
use super::tree::TREE_SKIPS;
use super::*;

fn create() -> LauncherRequest {
    LauncherRequest::Create(Box::new(CreateRequest {
        name: b"sb-7".to_vec(),
        uid: 1000,
        host_name: b"sandbox".to_vec(),
        view: vec![
            ViewEntry::Directory(b"a".to_vec()),
            ViewEntry::File(b"a/f".to_vec(), b"content".to_vec()),
            ViewEntry::Copy(b"c".to_vec(), b"/etc/services".to_vec()),
            ViewEntry::Symlink(b"l".to_vec(), b"a/f".to_vec()),
            ViewEntry::Bind(b"usr".to_vec(), b"/usr".to_vec()),
            ViewEntry::Device(b"dev/null".to_vec(), b"/dev/null".to_vec()),
            ViewEntry::Writable(b"tmp".to_vec(), 0o1777),
        ],
        disk_bytes: 1 << 40,
        inodes: 5,
        workdir: b"/workspace".to_vec(),
        cgroup: [
            CgroupAction::Ensure(b"/e".to_vec()),
            CgroupAction::Own(b"/o".to_vec()),
            CgroupAction::Write(b"/w".to_vec(), b"1".to_vec()),
            CgroupAction::Attach(b"/a".to_vec()),
            CgroupAction::CloneInto(b"/c".to_vec()),
            CgroupAction::WriteIfPresent(b"/p".to_vec(), b"2".to_vec()),
        ]
        .into_iter()
        .zip(Subject::ALL)
        .map(|(action, subject)| CgroupStep { subject, action })
        .collect(),
        pid_max: 1,
        user_processes: 2,
        cpus: 3,
        filter: vec![0; 16],
        lifetime_millis: u64::MAX,
        idle_millis: 6,
        parked: true,
        listing: Some(Listing {
            directory: b"/run/x".to_vec(),
            record: b"{}".to_vec(),
            kept: true,
            tags: b"{\"a\":\"b\"}".to_vec(),
        }),
    }))
}

fn requests() -> Vec<AgentRequest> {
    let run = RunRequest {
        arguments: vec![b"sh".to_vec(), vec![0xff]],
        search: vec![b"/bin".to_vec()],
        environment: vec![b"A=1".to_vec()],
        workdir: b"x".to_vec(),
        timeout_millis: 9,
        terminal: Some((24, 80)),
        make_room: false,
    };
    let start = StartRequest {
        run: run.clone(),
        keep_bytes: 7,
        stdin: true,
        counters: [b"oom_kill".to_vec(), Vec::new()],
    };
    let mut requests: Vec<AgentRequest> =
        asks().into_iter().map(|ask| AgentRequest::About(u64::MAX, ask)).collect();
    requests.extend([
        AgentRequest::Start(start),
        AgentRequest::Commands,
        AgentRequest::Run(RunRequest { terminal: None, make_room: true, ..run.clone() }),
        AgentRequest::Run(run),
        AgentRequest::Read { path: b"p".to_vec() },
        AgentRequest::Write { path: b"p".to_vec(), size: 3, content: Some(b"abc".to_vec()) },
        AgentRequest::Write { path: b"p".to_vec(), size: 3, content: None },
        AgentRequest::List { path: b".".to_vec() },
        AgentRequest::Import {
            path: b"p".to_vec(),
            size: 3,
            executable: true,
            content: Some(b"abc".to_vec()),
        },
        AgentRequest::Import { path: b"p".to_vec(), size: 3, executable: false, content: None },
        AgentRequest::Walk { path: b"p".to_vec(), max_depth: 9 },
        AgentRequest::Look,
        AgentRequest::Outlive,
    ]);
    requests
}

fn asks() -> Vec<CommandAsk> {
    vec![
        CommandAsk::Wait { patience_millis: 1 },
        CommandAsk::Read { stream: Stream::Output, offset: u64::MAX, patience_millis: 2 },
        CommandAsk::Read { stream: Stream::Error, offset: 0, patience_millis: 0 },
        CommandAsk::Write { bytes: b"in".to_vec(), end: true, patience_millis: 3 },
        CommandAsk::Signal(-1),
        CommandAsk::Kill,
    ]
}

fn about() -> Vec<SandboxRequest> {
    vec![
        SandboxRequest::Attach,
        SandboxRequest::Look,
        SandboxRequest::SetTags { expected: 1, fence: 2, tags: b"{}".to_vec() },
        SandboxRequest::Renew { lifetime_millis: 3 },
        SandboxRequest::Destroy,
    ]
}

fn answers() -> Vec<SandboxReply> {
    let state = State {
        version: 1,
        tags: b"{}".to_vec(),
        kept: true,
        age_millis: 2,
        remaining_millis: u64::MAX,
        remaining_idle_millis: 4,
    };
    vec![
        SandboxReply::Attached,
        SandboxReply::State(state),
        SandboxReply::Tagged(1),
        SandboxReply::Conflict(2),
        SandboxReply::Renewed(3),
        SandboxReply::Gone,
        SandboxReply::CgroupLeft,
        SandboxReply::Failed(5),
        SandboxReply::Fenced,
    ]
}

fn events() -> Vec<TreeEvent> {
    let name = || vec![0xff, b'\n'];
    let mut events = vec![
        TreeEvent::Enter(Vec::new()),
        TreeEvent::Leave,
        TreeEvent::File { name: name(), executable: true, size: u64::MAX },
        TreeEvent::Whole,
        TreeEvent::Symlink { name: name(), target: b"..".to_vec() },
        TreeEvent::End,
    ];
    events.extend(TREE_SKIPS.map(TreeEvent::Broken));
    events.extend(TREE_SKIPS.map(|why| TreeEvent::Skipped { name: name(), why }));
    events
}

fn replies() -> Vec<Reply> {
    let mut replies = vec![
        Reply::Started(false),
        Reply::Started(true),
        Reply::Exited(3),
        Reply::Signalled(9),
        Reply::TimedOut,
        Reply::Unstoppable,
        Reply::Terminal,
        Reply::Opened,
        Reply::Written,
        Reply::Entries(vec![Entry { name: vec![0xff, b'\n'], kind: 8, size: Some(4) }]),
        Reply::EndOfEntries,
        Reply::Fenced,
        Reply::Stored(5),
        Reply::Processes(vec![Seen { pid: 3, parent: 2, command: b"sh\0".to_vec() }]),
        Reply::EndOfProcesses,
        Reply::Begun(1),
        Reply::Stands(Standing { end: None, age_millis: 2, written: [3, 4] }),
        Reply::Wrote(Piece { offset: 5, bytes: b"out".to_vec(), end: true }),
        Reply::Took(6),
        Reply::NotOpen,
        Reply::Done,
        Reply::UnknownCommand,
        Reply::Busy,
        Reply::Commands(vec![7, u64::MAX]),
    ];
    let ends = [CommandEnd::Exited(3), CommandEnd::Signalled(9), CommandEnd::TimedOut];
    replies.extend(
        ends.map(|end| Reply::Stands(Standing { end: Some(end), age_millis: 2, written: [u64::MAX, 0] })),
    );
    replies.extend(NOT_STARTED.map(|step| Reply::NotStarted(step, 2)));
    replies.extend(FILE_FAULTS.map(|fault| Reply::FileFailed(fault, 20)));
    replies
}

#[cfg(test)]
fn round_trip<M: Message + PartialEq + std::fmt::Debug>(message: &M) {
    let bytes = message.encode();
    assert_eq!(M::decode(&bytes).as_ref(), Ok(message));
    // Neither a torn nor a longer message is taken for a message.
    for length in 0..bytes.len() {
        assert_eq!(M::decode(&bytes[..length]), Err(Malformed), "{message:?} cut to {length}");
    }
    assert_eq!(M::decode(&[bytes.as_slice(), b"x"].concat()), Err(Malformed));
}

#[test]
fn every_message_survives_and_no_part_of_one_does() {
    round_trip(&create());
    for request in about() {
        let request = Fenced { fence: 4, request };
        round_trip(&request);
        round_trip(&LauncherRequest::About(b"sb-7".to_vec(), request));
    }
    answers().iter().for_each(round_trip);
    asks().iter().for_each(round_trip);
    for request in requests() {
        round_trip(&request);
        round_trip(&Fenced { fence: 9, request });
    }
    replies().iter().for_each(round_trip);
    events().iter().for_each(round_trip);
    round_trip(&CreateReply::Ready { landlock_abi: 6 });
    for subject in Subject::ALL {
        round_trip(&CreateReply::Failed { subject, step: "mount".to_owned(), errno: 1 });
    }
}

#[test]
fn a_lying_count_reserves_nothing() {
    let mut bytes = vec![8];
    bytes.extend_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(Reply::decode(&bytes), Err(Malformed));
}

#[test]
fn a_changed_byte_never_panics() {
    for bytes in what_comes_back().into_iter().chain(what_is_asked()) {
        for index in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[index] = value;
                drop((
                    Reply::decode(&changed),
                    SandboxReply::decode(&changed),
                    CreateReply::decode(&changed),
                ));
                drop((LauncherRequest::decode(&changed), Fenced::<AgentRequest>::decode(&changed)));
                drop((TreeEvent::decode(&changed), CommandAsk::decode(&changed)));
            }
        }
    }
}

/// One of each message that comes back from inside, for the engine to begin with.
pub(crate) fn what_comes_back() -> Vec<Vec<u8>> {
    let created = [
        CreateReply::Ready { landlock_abi: 6 },
        CreateReply::Failed { subject: Subject::Memory, step: "mount".to_owned(), errno: 1 },
    ];
    let created = created.iter().map(Message::encode);
    let replies = replies().into_iter().map(|reply| reply.encode());
    let answers = answers().into_iter().map(|answer| answer.encode());
    created.chain(replies).chain(answers).chain(events().iter().map(Message::encode)).collect()
}

/// One of each message that launcher and agents take.
pub(crate) fn what_is_asked() -> Vec<Vec<u8>> {
    let fenced = requests().into_iter().map(|request| Fenced { fence: 9, request }.encode());
    let about = about().into_iter().map(|request| Fenced { fence: 4, request });
    let about = about
        .flat_map(|request| [request.encode(), LauncherRequest::About(b"sb-7".to_vec(), request).encode()]);
    let asks = asks().into_iter().map(|ask| ask.encode());
    std::iter::once(create().encode()).chain(fenced).chain(about).chain(asks).collect()
}
