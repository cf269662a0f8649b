//! What a walk through a tree says, through a pipe: events, each behind its length in two bytes, and behind a file's event its
//! content as it is.

use alloc::vec::Vec;

use super::codec::{Malformed, Message, Read, Reader, Writer};

/// One thing that was found. An entry lies in the directory that was entered last and not left; the tree itself has no name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TreeEvent {
    /// A directory begins.
    Enter(Vec<u8>),
    /// It ends.
    Leave,
    /// A file; its content follows, exactly that many bytes, and then one of the next two.
    File {
        /// Its name.
        name: Vec<u8>,
        /// Whether anybody can execute it.
        executable: bool,
        /// Bytes that follow.
        size: u64,
    },
    /// The content was the file's.
    Whole,
    /// It was not: it changed, or could not be read to its end; what was missing was made up.
    Broken(TreeSkip),
    /// A symbolic link.
    Symlink {
        /// Its name.
        name: Vec<u8>,
        /// Where it leads.
        target: Vec<u8>,
    },
    /// Something that is not told further about.
    Skipped {
        /// Its name.
        name: Vec<u8>,
        /// Why.
        why: TreeSkip,
    },
    /// That was all.
    End,
}

/// Why something is not copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TreeSkip {
    /// Neither file nor directory nor link.
    Special,
    /// Another file system begins there.
    Mount,
    /// It may not be read, or reading failed.
    Unreadable,
    /// Another thing than when it was looked at first.
    Changed,
}

pub(super) const TREE_SKIPS: [TreeSkip; 4] =
    [TreeSkip::Special, TreeSkip::Mount, TreeSkip::Unreadable, TreeSkip::Changed];

fn get_skip(reader: &mut Reader<'_>) -> Read<TreeSkip> {
    TREE_SKIPS.get(usize::from(reader.u8()?)).copied().ok_or(Malformed)
}

impl Message for TreeEvent {
    fn put(&self, writer: &mut Writer) {
        match self {
            Self::Enter(name) => {
                writer.u8(0);
                writer.bytes(name);
            }
            Self::Leave => writer.u8(1),
            Self::File { name, executable, size } => {
                writer.u8(2);
                writer.bytes(name);
                writer.u8(u8::from(*executable));
                writer.u64(*size);
            }
            Self::Whole => writer.u8(3),
            Self::Broken(why) => {
                writer.u8(4);
                writer.u8(*why as u8);
            }
            Self::Symlink { name, target } => {
                writer.u8(5);
                writer.bytes(name);
                writer.bytes(target);
            }
            Self::Skipped { name, why } => {
                writer.u8(6);
                writer.bytes(name);
                writer.u8(*why as u8);
            }
            Self::End => writer.u8(7),
        }
    }

    fn get(reader: &mut Reader<'_>) -> Read<Self> {
        Ok(match reader.u8()? {
            0 => Self::Enter(reader.bytes()?),
            1 => Self::Leave,
            2 => Self::File { name: reader.bytes()?, executable: reader.u8()? != 0, size: reader.u64()? },
            3 => Self::Whole,
            4 => Self::Broken(get_skip(reader)?),
            5 => Self::Symlink { name: reader.bytes()?, target: reader.bytes()? },
            6 => Self::Skipped { name: reader.bytes()?, why: get_skip(reader)? },
            7 => Self::End,
            _ => return Err(Malformed),
        })
    }
}
