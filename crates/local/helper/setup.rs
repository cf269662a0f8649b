//! From a freshly cloned process to the sandbox's first one: one pass, each step named, no step skipped.

use alloc::borrow::ToOwned;
use alloc::ffi::CString;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::{self, Vec};

use crate::agent;
use crate::ids::NOBODY;
use crate::sys::activity::Activity;
use crate::sys::fd::{BorrowedFd, OwnedFd};
use crate::sys::process::Forked;
use crate::sys::security::{self, Landlock, access};
use crate::sys::{Errno, file, mount, process, socket};
use crate::template::PLACE;
use crate::transport;
use crate::wire::{COPY_BYTES, CreateReply, CreateRequest, Subject, ViewEntry};

/// A step that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The field of the spec it is about.
    pub(crate) subject: Subject,
    /// What was being done.
    pub(crate) step: String,
    /// Why it failed.
    pub(crate) errno: Errno,
}

impl Failure {
    /// Makes the failure of a step that every sandbox needs.
    pub(crate) fn at(step: &'static str) -> impl FnOnce(Errno) -> Self {
        Self::about(Subject::Sandbox, step)
    }

    /// Makes the failure of a step that one field of the spec needs.
    pub(crate) fn about(subject: Subject, step: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| Self { subject, step: step.to_owned(), errno }
    }
}

/// Files of `/proc` that show the whole machine or act on it; a reader finds an empty file that cannot be written (S4, S50).
const MASKED_FILES: [&[u8]; 5] =
    [b"proc/kcore", b"proc/keys", b"proc/sysrq-trigger", b"proc/timer_list", b"proc/sched_debug"];
/// Directories of `/proc` about the machine's devices; a reader finds an empty directory.
const MASKED_DIRECTORIES: [&[u8]; 6] =
    [b"proc/acpi", b"proc/asound", b"proc/bus", b"proc/fs", b"proc/irq", b"proc/scsi"];

/// RESERVED_PIDS of the kernel.
const RESERVED_PIDS: u32 = 300;

/// A quarter of what a host user has by default.
const INOTIFY_INSTANCES: &str = "32";
/// Enough for a large source tree.
const INOTIFY_WATCHES: &str = "65536";

/// Where the sources of masks lie until they are mounted.
const EMPTY_DIRECTORY: &[u8] = b".empty";
const EMPTY_FILE: &[u8] = b".empty-file";

/// What the launcher gives a new process.
#[derive(Debug)]
pub(crate) struct Seed {
    /// To the launcher.
    pub(crate) link: OwnedFd,
    /// Unlike any other of this launcher.
    pub(crate) number: u64,
    /// Where the launcher sees when it was last used.
    pub(crate) activity: Option<Activity>,
    /// Whether what it sees has been made already, and lies at [`PLACE`].
    pub(crate) has_template: bool,
    /// Whether what is not its own is [`NOBODY`]'s.
    pub(crate) has_nobody: bool,
}

/// Becomes the sandbox and serves it; the process ends here.
pub(crate) fn become_sandbox(
    request: &CreateRequest,
    seed: Seed,
    agent: BorrowedFd<'_>,
    may_drop_groups: bool,
) -> ! {
    let (link, socket) = match keep_only(seed.link, agent) {
        Ok(kept) => kept,
        Err(failure) => refuse(agent, failure),
    };
    let source = match (seed.has_template, seed.has_nobody) {
        (true, _) => Fixed::Copied,
        (false, true) => Fixed::Made { owner: NOBODY },
        (false, false) => Fixed::Made { owner: request.uid },
    };
    match prepare(request, link.as_fd(), may_drop_groups, source) {
        Ok(Some(ready)) => {
            let reply = CreateReply::Ready { landlock_abi: ready.landlock_abi };
            // Of this process, so that who made it can end it without asking anybody.
            let told = process::pidfd_open(process::getpid())
                .and_then(|first| transport::reply(socket.as_fd(), &reply, &[first.as_fd()]));
            match told {
                Ok(()) => {
                    let place = agent::Place {
                        workdir: ready.workdir,
                        cpus: process::CpuShare { count: request.cpus, seed: seed.number },
                        activity: seed.activity,
                    };
                    process::exit(agent::run(link, socket, place))
                }
                Err(_) => process::exit(1),
            }
        }
        Ok(None) => process::exit(1),
        Err(failure) => refuse(socket.as_fd(), failure),
    }
}

impl CreateReply {
    /// The answer that tells of a failure.
    pub(crate) fn failed(failure: Failure) -> Self {
        Self::Failed { subject: failure.subject, step: failure.step, errno: failure.errno.0 }
    }
}

fn refuse(agent: BorrowedFd<'_>, failure: Failure) -> ! {
    // An owner that no longer listens needs no answer.
    drop(transport::reply(agent, &CreateReply::failed(failure), &[]));
    process::exit(1)
}

struct Ready {
    workdir: OwnedFd,
    landlock_abi: u32,
}

/// `None`: the launcher died meanwhile, so this process has no business any more.
fn prepare(
    request: &CreateRequest,
    link: BorrowedFd<'_>,
    may_drop_groups: bool,
    fixed: Fixed,
) -> Result<Option<Ready>, Failure> {
    let (go, _) = socket::receive(link, 2).map_err(Failure::at("wait for the launcher"))?;
    if go.is_empty() {
        return Ok(None);
    }
    let shown = match fixed {
        Fixed::Copied => Vec::new().into_iter(),
        Fixed::Made { .. } => open_shown(&request.view)?,
    };
    become_inner_user(request.uid, may_drop_groups)?;
    if !tie_to_launcher(link)? {
        return Ok(None);
    }

    let assistant = Assistant::begin()?;
    process::set_umask(0);
    let root = make_root(request, fixed, shown)?;
    // Once more: to make files for another user is to be that one, as far as the kernel's clearing goes.
    if !tie_to_launcher(link)? {
        return Ok(None);
    }
    file::change_directory_to(root.as_fd()).map_err(Failure::at("enter the new root"))?;
    mount::enter_root().map_err(Failure::at("make the new root the root"))?;
    assistant.let_go()?;
    file::change_directory(b"/").map_err(Failure::at("enter the root"))?;
    drop(root);
    process::set_umask(0o022);

    assistant.enter_network()?;
    process::set_host_name(&request.host_name).map_err(Failure::at("set the host name"))?;
    open_standard_descriptors()?;
    let workdir = file::open(None, &request.workdir, libc::O_DIRECTORY | libc::O_RDONLY, 0)
        .and_then(|fd| file::move_up(fd, 3))
        .map_err(Failure::about(Subject::Workdir, "open the working directory"))?;
    file::change_directory_to(workdir.as_fd())
        .map_err(Failure::about(Subject::Workdir, "enter the working directory"))?;
    restrict(request)?;
    let landlock_abi = give_up_privileges(request)?;
    // Nothing of the host can be seen before the sandbox is said to be ready.
    assistant.finish()?;
    Ok(Some(Ready { workdir, landlock_abi }))
}

/// Makes this process end with the launcher. False where that is gone already.
fn tie_to_launcher(link: BorrowedFd<'_>) -> Result<bool, Failure> {
    // After each change of user, which clears it. It fires when the launcher ends: that has a single thread, so "parent
    // thread" and "parent process" are the same here.
    process::die_with_parent().map_err(Failure::at("tie the sandbox to the launcher"))?;
    let mut watch = [socket::Poll::new(Some(link))];
    socket::poll(&mut watch, Some(0)).map_err(Failure::at("look for the launcher"))?;
    Ok(!watch[0].ready || socket::has_message(link))
}

/// A process beside this one, for the two steps that mostly wait for the kernel: the network, which takes as long as all mounts together,
/// and letting go of the old root, which waits for every processor to have noticed.
struct Assistant {
    pid: libc::pid_t,
    socket: OwnedFd,
}

/// Tells the assistant that the new root is the root.
const ENTERED: &[u8] = b"entered";

impl Assistant {
    /// Begins with the network. Until it is there this process, which runs nothing but what is here, is in the launcher's.
    fn begin() -> Result<Self, Failure> {
        let at = || Failure::about(Subject::Network, "begin to make the network namespace");
        let (socket, theirs) = socket::pair().map_err(at())?;
        // Below lie the standard descriptors to be.
        let socket = file::move_up(socket, 3).map_err(at())?;
        match process::fork().map_err(at())? {
            Forked::Parent(pid) => Ok(Self { pid, socket }),
            Forked::Child => {
                // Or the end of this process would not be seen there.
                drop(socket);
                process::exit(i32::from(assist(theirs.as_fd()).is_err()))
            }
        }
    }

    /// Lets it let go of the old root, which lies on top of the new one.
    fn let_go(&self) -> Result<(), Failure> {
        socket::send(self.socket.as_fd(), ENTERED, &[]).map_err(Failure::at("have the old root let go of"))
    }

    /// Goes into the network. The socket that comes shows the way.
    fn enter_network(&self) -> Result<(), Failure> {
        let at = || Failure::about(Subject::Network, "make the network namespace");
        let sockets = self.result().map_err(at())?;
        let inside = sockets.first().ok_or(Errno(libc::EPROTO)).map_err(at())?;
        socket::network_of(inside.as_fd())
            .and_then(|network| process::enter_network(network.as_fd()))
            .map_err(at())
    }

    /// Waits until the old root is gone, and with it the assistant: the agent shall meet no process that it knows nothing of.
    fn finish(self) -> Result<(), Failure> {
        let at = || Failure::at("make the new root the root");
        self.result().map_err(at())?;
        process::wait_for(self.pid).map(drop).map_err(at())
    }

    /// The result of its next step.
    fn result(&self) -> crate::sys::Result<Vec<OwnedFd>> {
        let (result, sockets) = socket::receive(self.socket.as_fd(), size_of::<i32>())?;
        match result.try_into().map(i32::from_le_bytes) {
            Ok(0) => Ok(sockets),
            Ok(errno @ 1..) => Err(Errno(errno)),
            // It was killed.
            _ => Err(Errno(libc::EPIPE)),
        }
    }
}

fn assist(agent: BorrowedFd<'_>) -> crate::sys::Result<()> {
    let tell = |result: &crate::sys::Result<()>, sockets: &[BorrowedFd<'_>]| {
        let errno = result.as_ref().err().map_or(0, |errno| errno.0);
        socket::send(agent, &errno.to_le_bytes(), sockets)
    };
    let network = process::make_network().and_then(|()| socket::loopback_up());
    match &network {
        Ok(inside) => tell(&Ok(()), &[inside.as_fd()])?,
        Err(errno) => tell(&Err(Errno(errno.0)), &[])?,
    }
    // Taken in any case: with something unread here the agent would hear of a reset and not of the error. Nothing comes where it has failed.
    let entered = socket::receive(agent, ENTERED.len())?.0 == ENTERED;
    if !entered || network.is_err() {
        return Ok(());
    }
    // Whose root and directory were the old root has the new one for both since.
    tell(&mount::let_go_of_old_root(), &[])
}

/// Closes whatever the launcher had open, other sandboxes' descriptors above all.
fn keep_only(link: OwnedFd, agent: BorrowedFd<'_>) -> Result<(OwnedFd, OwnedFd), Failure> {
    let copy = agent.duplicate(3).map_err(Failure::at("duplicate the agent's socket"))?;
    let link = file::move_up(link, 3).map_err(Failure::at("move a descriptor"))?;
    file::close_all_but(&[link.as_raw_fd(), copy.as_raw_fd()])
        .map_err(Failure::at("close inherited descriptors"))?;
    Ok((link, copy))
}

fn become_inner_user(id: u32, may_drop_groups: bool) -> Result<(), Failure> {
    if may_drop_groups {
        process::drop_groups().map_err(Failure::at("drop supplementary groups"))?;
    }
    // Id 0 is not mapped inside, so the kernel sees no "root gives up root" here and keeps the capabilities over the
    // namespaces until they are dropped on purpose.
    process::become_user(id, id).map_err(Failure::at("become the sandbox's user"))
}

/// Opens what the sandbox is shown of the host, as whoever started the launcher: the sandbox's own user may not pass the folders
/// above, such as root's home. What lies in it stays as open or closed to that user as its permissions say.
fn open_shown(view: &[ViewEntry]) -> Result<vec::IntoIter<OwnedFd>, Failure> {
    let shown = view.iter().filter_map(|entry| match entry {
        ViewEntry::Bind(path, source) => Some((path, source, libc::O_PATH)),
        // Were it another kind of file by now, it would not be waited for, and cannot be copied.
        ViewEntry::Copy(path, source) => {
            Some((path, source, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY))
        }
        _ => None,
    });
    let opened = shown.map(|(path, source, flags)| {
        file::open(None, source, flags, 0).map_err(|errno| step_failed(Subject::Shown, SHOW, path, errno))
    });
    Ok(opened.collect::<Result<Vec<_>, _>>()?.into_iter())
}

const SHOW: &str = "show host path read-only at";

fn step_failed(subject: Subject, verb: &str, path: &[u8], errno: Errno) -> Failure {
    Failure { subject, step: format!("{verb} /{}", String::from_utf8_lossy(path)), errno }
}

/// A memory file system of this size, mounted at a path below `directory`.
fn new_disk(
    bytes: u64,
    inodes: u64,
    directory: Option<BorrowedFd<'_>>,
    place: &[u8],
) -> Result<OwnedFd, Failure> {
    let size = CString::new(bytes.to_string()).unwrap_or_default();
    let inodes = CString::new(inodes.to_string()).unwrap_or_default();
    let disk = mount::new_filesystem(
        c"tmpfs",
        &[(c"size", &size), (c"nr_inodes", &inodes), (c"mode", c"0755")],
        mount::NO_SUID | mount::NO_DEV,
    )
    .map_err(Failure::about(Subject::Disk, "create the root file system"))?;
    mount::attach(disk.as_fd(), directory, place).map_err(Failure::at("mount the root file system"))?;
    Ok(disk)
}

/// The part of a root that is the same for every sandbox with its view, and read-only.
#[derive(Debug, Clone, Copy)]
enum Fixed {
    /// It has been made already, and lies at [`PLACE`].
    Copied,
    /// The sandbox makes its own, which belongs to this user.
    Made { owner: u32 },
}

/// Bytes and files that the fixed part can have: more than what a view has of its own, which is text.
const FIXED_BYTES: u64 = 16 << 20;
const FIXED_INODES: u64 = 4096;

/// Makes the part of a root that is the same for every sandbox with this view; it lies at [`PLACE`] then. By the launcher.
pub(crate) fn make_template(view: &[ViewEntry]) -> Result<(), Failure> {
    let mut shown = open_shown(view)?;
    let root = new_disk(FIXED_BYTES, FIXED_INODES, None, PLACE)?;
    let mask = process::set_umask(0);
    let furnished = furnish(root.as_fd(), view, &mut shown);
    process::set_umask(mask);
    if furnished.is_err() {
        // Nobody gets half a root. What cannot be let go of is this process's alone.
        drop(mount::detach(PLACE));
    }
    furnished
}

fn furnish(
    root: BorrowedFd<'_>,
    view: &[ViewEntry],
    shown: &mut vec::IntoIter<OwnedFd>,
) -> Result<(), Failure> {
    for (entry, own) in with_owner(view) {
        match (entry, own) {
            (ViewEntry::Writable(path, _), Own::Mount) => {
                file::make_directory(Some(root), path, 0o755)
                    .map_err(|errno| step_failed(Subject::OwnFiles, "create directory", path, errno))?;
            }
            (_, Own::Shared) => place(root, entry, shown)?,
            _ => {}
        }
    }
    // What the host mounts later below what is shown would come as it is, writable if it is.
    mount::isolate(root).map_err(Failure::at("make the mount tree private"))?;
    mount::set_attributes(root, mount::READ_ONLY | mount::NO_SUID | mount::NO_DEV, false)
        .map_err(Failure::at("make the root read-only"))
}

/// Whose an entry of the view is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Own {
    /// Everybody's: it is in the fixed part.
    Shared,
    /// The sandbox's, mounted onto a directory of the fixed part.
    Mount,
    /// The sandbox's, in a writable directory of it.
    Inside,
}

fn with_owner(view: &[ViewEntry]) -> impl Iterator<Item = (&ViewEntry, Own)> {
    let mut writable: Vec<&[u8]> = Vec::new();
    view.iter().map(move |entry| {
        let path = match entry {
            ViewEntry::Directory(path)
            | ViewEntry::File(path, _)
            | ViewEntry::Copy(path, _)
            | ViewEntry::Symlink(path, _)
            | ViewEntry::Bind(path, _)
            | ViewEntry::Device(path, _)
            | ViewEntry::Writable(path, _) => path.as_slice(),
        };
        let is_inside = writable.iter().any(|above| {
            path.strip_prefix(*above).is_some_and(|rest| rest.first().is_some_and(|byte| *byte == b'/'))
        });
        match entry {
            _ if is_inside => (entry, Own::Inside),
            ViewEntry::Writable(..) => {
                writable.push(path);
                (entry, Own::Mount)
            }
            _ => (entry, Own::Shared),
        }
    })
}

/// Makes the root: the fixed part, or a copy of its mounts, and writable places of its own.
///
/// Those are parts of one file system, and the kernel takes parts only of what is mounted. It is put where `/proc` will be, which then
/// lies on top of it for good: to take it away again would cost a grace period of the kernel, and on top of the old root it would
/// keep that from being let go of.
fn make_root(
    request: &CreateRequest,
    fixed: Fixed,
    mut shown: vec::IntoIter<OwnedFd>,
) -> Result<OwnedFd, Failure> {
    mount::make_private().map_err(Failure::at("make the mount tree private"))?;
    // On top of the old root: its paths stay reachable by name, because look-ups start below what is stacked on it.
    let root = match fixed {
        Fixed::Copied => {
            let root =
                mount::clone_tree(None, PLACE, true).map_err(Failure::at("copy the template of the root"))?;
            mount::attach(root.as_fd(), None, b"/").map_err(Failure::at("mount the root file system"))?;
            root
        }
        Fixed::Made { owner } => {
            let at = || Failure::at("make files for another user");
            process::make_files_of(owner).map_err(at())?;
            let root = new_disk(FIXED_BYTES, FIXED_INODES, None, b"/")?;
            furnish(root.as_fd(), &request.view, &mut shown)?;
            process::make_files_of(request.uid).map_err(at())?;
            root
        }
    };
    let disk = new_disk(request.disk_bytes, request.inodes, Some(root.as_fd()), b"proc")?;
    let mut none = Vec::new().into_iter();
    for (index, (entry, own)) in with_owner(&request.view).enumerate() {
        match (entry, own) {
            (ViewEntry::Writable(path, mode), Own::Mount) => {
                let name = index.to_string().into_bytes();
                file::make_directory(Some(disk.as_fd()), &name, *mode)
                    .and_then(|()| writable_mount(disk.as_fd(), &name))
                    .and_then(|tree| mount::attach(tree.as_fd(), Some(root.as_fd()), path))
                    .map_err(|errno| {
                        step_failed(Subject::OwnFiles, "create writable directory", path, errno)
                    })?;
            }
            (_, Own::Inside) => place(root.as_fd(), entry, &mut none)?,
            _ => {}
        }
    }
    mount_proc(root.as_fd(), disk.as_fd(), request)?;
    mount_terminals(root.as_fd())?;
    Ok(root)
}

/// `shown` has the sources of the host paths, in their order.
fn place(root: BorrowedFd<'_>, entry: &ViewEntry, shown: &mut vec::IntoIter<OwnedFd>) -> Result<(), Failure> {
    let (path, verb, result) = match entry {
        ViewEntry::Directory(path) => {
            (path, "create directory", file::make_directory(Some(root), path, 0o755))
        }
        ViewEntry::File(path, content) => (path, "create file", write_file(root, path, content)),
        ViewEntry::Copy(path, _) => {
            let source = shown.next().ok_or(Errno(libc::EBADF));
            (path, "copy host file to", source.and_then(|source| copy_file(root, path, source.as_fd())))
        }
        ViewEntry::Symlink(path, target) => {
            (path, "create symbolic link", file::make_symlink(target, root, path))
        }
        ViewEntry::Bind(path, _) => {
            let source = shown.next().ok_or(Errno(libc::EBADF));
            let attributes = mount::READ_ONLY | mount::NO_SUID | mount::NO_DEV;
            (path, SHOW, source.and_then(|source| bind(root, path, Some(source.as_fd()), b"", attributes)))
        }
        ViewEntry::Device(path, source) => (
            path,
            "show device",
            bind(root, path, None, source, mount::READ_ONLY | mount::NO_SUID | mount::NO_EXEC),
        ),
        ViewEntry::Writable(path, mode) => (path, "create writable directory", writable(root, path, *mode)),
    };
    let subject = match entry {
        ViewEntry::Bind(..) | ViewEntry::Copy(..) | ViewEntry::Device(..) => Subject::Shown,
        _ => Subject::OwnFiles,
    };
    result.map_err(|errno| step_failed(subject, verb, path, errno))
}

fn new_file(root: BorrowedFd<'_>, path: &[u8]) -> crate::sys::Result<OwnedFd> {
    file::open(Some(root), path, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, 0o644)
}

fn write_file(root: BorrowedFd<'_>, path: &[u8], content: &[u8]) -> crate::sys::Result<()> {
    file::write_all(new_file(root, path)?.as_fd(), content)
}

/// One that has grown beyond what is copied since it was chosen is EFBIG: half of it would be worse than nothing.
fn copy_file(root: BorrowedFd<'_>, path: &[u8], source: BorrowedFd<'_>) -> crate::sys::Result<()> {
    let copied = file::copy(source, new_file(root, path)?.as_fd(), COPY_BYTES + 1)?;
    if copied > COPY_BYTES { Err(Errno(libc::EFBIG)) } else { Ok(()) }
}

/// The source is a path below `directory`, or with an empty path that itself.
fn bind(
    root: BorrowedFd<'_>,
    path: &[u8],
    directory: Option<BorrowedFd<'_>>,
    source: &[u8],
    attributes: u64,
) -> crate::sys::Result<()> {
    // Recursively, because a mount below may be locked to its parent; its attributes are set recursively too.
    let tree = mount::clone_tree(directory, source, true)?;
    mount::set_attributes(tree.as_fd(), attributes, true)?;
    if file::metadata(tree.as_fd())?.is(libc::S_IFDIR) {
        file::make_directory(Some(root), path, 0o755)?;
    } else {
        write_file(root, path, b"")?;
    }
    mount::attach(tree.as_fd(), Some(root), path)
}

/// A directory of the root's own file system, mounted onto itself so that it stays writable when the root is not.
fn writable(root: BorrowedFd<'_>, path: &[u8], mode: u32) -> crate::sys::Result<()> {
    file::make_directory(Some(root), path, mode)?;
    let tree = writable_mount(root, path)?;
    mount::attach(tree.as_fd(), Some(root), path)
}

fn writable_mount(disk: BorrowedFd<'_>, path: &[u8]) -> crate::sys::Result<OwnedFd> {
    let tree = mount::clone_tree(Some(disk), path, false)?;
    mount::set_attributes(tree.as_fd(), mount::NO_SUID | mount::NO_DEV, false)?;
    Ok(tree)
}

/// `disk` is where the sources of masks lie meanwhile.
fn mount_proc(root: BorrowedFd<'_>, disk: BorrowedFd<'_>, request: &CreateRequest) -> Result<(), Failure> {
    let attributes = mount::NO_SUID | mount::NO_DEV | mount::NO_EXEC;
    let proc = mount::new_filesystem(c"proc", &[], attributes)
        .map_err(Failure::about(Subject::Proc, "create /proc"))?;
    mount::attach(proc.as_fd(), Some(root), b"proc").map_err(Failure::about(Subject::Proc, "mount /proc"))?;
    // No user namespaces inside: they open kernel code that only privileged processes reach otherwise (S13). A kernel
    // without the switch has no unprivileged user namespaces, and the filter refuses them anyway. Watches of files are counted
    // per user of the host too, so one sandbox must not take all of them.
    for (setting, value) in [
        (&b"sys/user/max_user_namespaces"[..], "0"),
        (b"sys/user/max_inotify_instances", INOTIFY_INSTANCES),
        (b"sys/user/max_inotify_watches", INOTIFY_WATCHES),
    ] {
        match write_setting(proc.as_fd(), setting, value) {
            Ok(()) | Err(Errno(libc::ENOENT)) => {}
            Err(errno) => return Err(Failure::about(Subject::Ids, "limit the user namespace")(errno)),
        }
    }
    if request.pid_max > 0 {
        // The kernel keeps numbers up to 300 for the first round. Starting behind them makes every round the same, so that
        // the highest number is the most processes, not 300 more or fewer.
        write_setting(proc.as_fd(), b"sys/kernel/ns_last_pid", &RESERVED_PIDS.to_string())
            .map_err(Failure::about(Subject::Pids, "set ns_last_pid of the pid namespace"))?;
        // The first process counts, and its number is not one of them. No kernel takes more than the last number here.
        let highest = (RESERVED_PIDS + request.pid_max - 1).min(1 << 22);
        write_setting(proc.as_fd(), b"sys/kernel/pid_max", &highest.to_string())
            .map_err(Failure::about(Subject::Pids, "set pid_max of the pid namespace"))?;
    }
    mask_proc(root, disk).map_err(Failure::about(Subject::Proc, "mask parts of /proc"))
}

fn write_setting(proc: BorrowedFd<'_>, path: &[u8], value: &str) -> crate::sys::Result<()> {
    let fd = file::open(Some(proc), path, libc::O_WRONLY, 0)?;
    file::write_all(fd.as_fd(), value.as_bytes())
}

fn mask_proc(root: BorrowedFd<'_>, disk: BorrowedFd<'_>) -> crate::sys::Result<()> {
    let read_only = mount::READ_ONLY | mount::NO_SUID | mount::NO_DEV | mount::NO_EXEC;
    let settings = mount::clone_tree(Some(root), b"proc/sys", true)?;
    mount::set_attributes(settings.as_fd(), read_only, true)?;
    mount::attach(settings.as_fd(), Some(root), b"proc/sys")?;
    file::make_directory(Some(disk), EMPTY_DIRECTORY, 0o555)?;
    drop(file::open(Some(disk), EMPTY_FILE, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, 0o444)?);
    for (paths, source) in [(&MASKED_FILES[..], EMPTY_FILE), (&MASKED_DIRECTORIES[..], EMPTY_DIRECTORY)] {
        for path in paths {
            // Asked first: a mount that was made and finds no place costs a grace period of the kernel when it is dropped.
            match file::open(Some(root), path, libc::O_PATH | libc::O_NOFOLLOW, 0) {
                Ok(_) => {}
                // This kernel has no such entry.
                Err(Errno(libc::ENOENT)) => continue,
                Err(errno) => return Err(errno),
            }
            let mask = mount::clone_tree(Some(disk), source, false)?;
            mount::set_attributes(mask.as_fd(), read_only, false)?;
            mount::attach(mask.as_fd(), Some(root), path)?;
        }
    }
    // The masks keep what they show; its names are of no further use.
    file::remove_directory(Some(disk), EMPTY_DIRECTORY)?;
    file::unlink(disk, EMPTY_FILE)
}

fn mount_terminals(root: BorrowedFd<'_>) -> Result<(), Failure> {
    let options = [(c"mode", c"0620"), (c"ptmxmode", c"0666"), (c"max", c"256")];
    let terminals = mount::new_filesystem(c"devpts", &options, mount::NO_SUID | mount::NO_EXEC)
        .map_err(Failure::at("create /dev/pts"))?;
    mount::attach(terminals.as_fd(), Some(root), b"dev/pts").map_err(Failure::at("mount /dev/pts"))
}

/// Standard input and output of the agent are the sandbox's own null device.
fn open_standard_descriptors() -> Result<(), Failure> {
    let step = "open /dev/null";
    let null = file::open(None, b"/dev/null", libc::O_RDWR, 0).map_err(Failure::at(step))?;
    let null = file::move_up(null, 3).map_err(Failure::at(step))?;
    for number in 0..=2 {
        file::duplicate_to(null.as_fd(), number).map_err(Failure::at(step))?;
    }
    Ok(())
}

fn restrict(request: &CreateRequest) -> Result<(), Failure> {
    // 1 rather than 0: the one value with which the kernel also starts no handler of a `|` pattern (S48).
    process::set_limit(libc::RLIMIT_CORE, 1).map_err(Failure::at("forbid core dumps"))?;
    // Counted per user of the host, whoever's namespaces they are in: one sandbox must not take all of them.
    for (resource, most) in
        [(libc::RLIMIT_SIGPENDING, 1024), (libc::RLIMIT_MSGQUEUE, 256 << 10), (libc::RLIMIT_MEMLOCK, 1 << 20)]
    {
        process::lower_limit(resource, most).map_err(Failure::at("limit what the host counts per user"))?;
    }
    if request.user_processes > 0 {
        // Whoever started all this may have less: that holds too, and nobody may raise it.
        process::lower_limit(libc::RLIMIT_NPROC, u64::from(request.user_processes))
            .map_err(Failure::about(Subject::Pids, "limit the processes of the sandbox's user"))?;
    }
    Ok(())
}

/// The order matters: Landlock forbids mounts, and the filter forbids Landlock.
fn give_up_privileges(request: &CreateRequest) -> Result<u32, Failure> {
    security::drop_capabilities().map_err(Failure::at("drop capabilities"))?;
    process::no_new_privileges().map_err(Failure::at("forbid new privileges"))?;
    let landlock_abi = apply_landlock(request).map_err(Failure::at("apply Landlock"))?;
    process::hide_memory().map_err(Failure::at("hide the agent's memory"))?;
    security::load_filter(&request.filter).map_err(Failure::at("load the seccomp filter"))?;
    Ok(landlock_abi)
}

/// The second wall behind the mount namespace: the same view again, as rights. Returns the ABI, 0 without Landlock.
fn apply_landlock(request: &CreateRequest) -> crate::sys::Result<u32> {
    let Some(landlock) = Landlock::new()? else { return Ok(0) };
    let read = access::EXECUTE | access::READ_FILE | access::READ_DIR;
    let allow = |path: &[u8], rights: u64| -> crate::sys::Result<()> {
        let directory = file::open(None, path, libc::O_PATH | libc::O_DIRECTORY, 0)?;
        landlock.allow(directory.as_fd(), rights)
    };
    allow(b"/", read)?;
    allow(b"/dev", read | access::WRITE_FILE | access::TRUNCATE)?;
    allow(b"/proc", read | access::WRITE_FILE | access::TRUNCATE)?;
    for entry in &request.view {
        if let ViewEntry::Writable(path, _) = entry {
            allow(&[b"/", path.as_slice()].concat(), access::WRITABLE)?;
        }
    }
    let abi = landlock.abi;
    landlock.enforce()?;
    Ok(abi)
}
