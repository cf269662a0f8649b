//! When a sandbox was last used: a page that its agent and the launcher share, so that the launcher looks whenever it wants and
//! an operation costs a store.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::{Errno, Result};

/// Requests that are told apart while they are worked on. One more than these counts as use until its process has ended, what it
/// left in the background included.
const SLOTS: usize = 256;

#[repr(C)]
struct Page {
    last_millis: AtomicU64,
    overflowing: AtomicU64,
    slots: [AtomicU8; SLOTS],
}

/// The page. A fork of this process has it too.
#[derive(Debug)]
pub(crate) struct Activity(NonNull<Page>);

/// The mark of one request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark(Option<usize>);

impl Activity {
    /// Makes a page.
    pub(crate) fn new(now_millis: u64) -> Result<Self> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        let nowhere: *mut u8 = core::ptr::null_mut();
        // SAFETY: a new mapping where nothing is.
        let address = unsafe { call!(libc::SYS_mmap, nowhere, size_of::<Page>(), protection, flags, -1, 0) }?;
        let page =
            NonNull::new(core::ptr::with_exposed_provenance_mut(address)).ok_or(Errno(libc::ENOMEM))?;
        let activity = Self(page);
        activity.page().last_millis.store(now_millis, Ordering::Relaxed);
        Ok(activity)
    }

    fn page(&self) -> &Page {
        // SAFETY: mapped and zeroed, which is a valid page, until this is dropped; all of it is atomic.
        unsafe { self.0.as_ref() }
    }

    /// Keeps later forks of this process from having it: they are other sandboxes.
    pub(crate) fn keep_from_forks(&self) -> Result<()> {
        // SAFETY: our own mapping, which stays as it is here.
        unsafe { call!(libc::SYS_madvise, self.0.as_ptr(), size_of::<Page>(), libc::MADV_DONTFORK) }.map(drop)
    }

    /// Notes a request that is over at once.
    pub(crate) fn touch(&self, now_millis: u64) {
        self.page().last_millis.store(now_millis, Ordering::Relaxed);
    }

    /// Notes that a request is worked on from now.
    pub(crate) fn begin(&self, now_millis: u64) -> Mark {
        self.touch(now_millis);
        let free = self.page().slots.iter().position(|slot| slot.load(Ordering::Relaxed) == 0);
        match free {
            Some(slot) => self.page().slots[slot].store(1, Ordering::Relaxed),
            None => drop(self.page().overflowing.fetch_add(1, Ordering::Relaxed)),
        }
        Mark(free)
    }

    /// Notes that a request has been answered. To be called by the process that works on it.
    pub(crate) fn answered(&self, mark: Mark, now_millis: u64) {
        if let Mark(Some(slot)) = mark {
            self.touch(now_millis);
            self.page().slots[slot].store(0, Ordering::Relaxed);
        }
    }

    /// Notes that the process of a request is gone. To be called once, by the one that began.
    pub(crate) fn ended(&self, mark: Mark, now_millis: u64) {
        match mark {
            Mark(Some(slot)) if self.page().slots[slot].swap(0, Ordering::Relaxed) == 0 => {}
            Mark(Some(_)) => self.touch(now_millis),
            Mark(None) => {
                self.touch(now_millis);
                self.page().overflowing.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// How long no request has been worked on.
    pub(crate) fn idle_millis(&self, now_millis: u64) -> u64 {
        let page = self.page();
        if page.overflowing.load(Ordering::Relaxed) > 0
            || page.slots.iter().any(|slot| slot.load(Ordering::Relaxed) != 0)
        {
            return 0;
        }
        now_millis.saturating_sub(page.last_millis.load(Ordering::Relaxed))
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        // SAFETY: our own mapping, used no more.
        drop(unsafe { call!(libc::SYS_munmap, self.0.as_ptr(), size_of::<Page>()) });
    }
}
