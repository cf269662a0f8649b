use std::num::NonZeroUsize;

use proptest::prelude::*;
use ringfence_core::file::MAX_PATH_BYTES;
use ringfence_core::{DirectoryEntry, EntryKind, ErrorKind, GuestPath, ListRequest, Listing};

#[test]
fn bd_05_the_empty_path_does_not_exist() {
    let error = GuestPath::new("").expect_err("refused");
    assert_eq!((error.kind(), error.is_terminal()), (&ErrorKind::NotFound, false));
    assert!(error.message().contains("does not exist"));
}

#[test]
fn bd_05_nul_and_over_long_paths_are_values_nobody_can_mean() {
    for path in [b"a\0b".to_vec(), vec![b'x'; MAX_PATH_BYTES + 1]] {
        assert_eq!(GuestPath::new(path).expect_err("refused").kind(), &ErrorKind::InvalidArgument);
    }
    assert!(GuestPath::new(vec![b'x'; MAX_PATH_BYTES]).is_ok());
}

#[test]
fn paths_are_bytes_and_shown_on_one_line() {
    for (bytes, shown) in [
        (&b"/w/a b'.txt"[..], "/w/a b'.txt"),
        (b"h\xc3\xa9", "hé"),
        (b"a\nb", r"a\nb"),
        (b"\xff", r"\xff"),
        ("a\u{2028}b".as_bytes(), r"a\xe2\x80\xa8b"),
    ] {
        let path = GuestPath::new(bytes).expect("accepted");
        assert_eq!((path.as_bytes(), path.to_string()), (bytes, shown.to_owned()));
    }
    assert!(GuestPath::new("/a").expect("accepted").is_absolute());
    assert!(!GuestPath::new("a/").expect("accepted").is_absolute());
}

fn entry(name: &[u8]) -> DirectoryEntry {
    DirectoryEntry { name: name.to_vec(), kind: EntryKind::File, size_bytes: Some(1) }
}

#[test]
fn ld_02_pages_are_in_byte_order() {
    // One comes twice, as when the directory changes while it is read.
    let all: Vec<DirectoryEntry> =
        [&b"b"[..], b"B", b"\xff", b"sub-1", b"b", b".h", b"sub"].map(entry).into();
    let page = |max_entries, after: Option<&[u8]>| {
        let max_entries = NonZeroUsize::new(max_entries).expect("a size");
        Listing::page(all.clone(), &ListRequest { max_entries, after: after.map(<[u8]>::to_vec) })
    };
    let listing = |names: &[&[u8]], remaining| Listing {
        entries: names.iter().map(|name| entry(name)).collect(),
        remaining,
    };
    assert_eq!(page(10, None), listing(&[b".h", b"B", b"b", b"sub", b"sub-1", b"\xff"], 0));
    assert_eq!(page(2, None), listing(&[b".h", b"B"], 4));
    assert_eq!(page(2, Some(b"B")), listing(&[b"b", b"sub"], 2));
    assert_eq!(page(2, Some(b"c")), listing(&[b"sub", b"sub-1"], 1));
    assert_eq!(page(2, Some(b"\xff")), listing(&[], 0));
}

proptest! {
    #[test]
    fn p_62_pages_put_together_are_the_directory(
        names in proptest::collection::btree_set("[a-c]{1,4}", 0..30), max_entries in 1usize..8
    ) {
        let all: Vec<DirectoryEntry> = names.iter().map(|name| entry(name.as_bytes())).collect();
        let mut seen: Vec<DirectoryEntry> = Vec::new();
        loop {
            let max_entries = NonZeroUsize::new(max_entries).expect("a size");
            let after = seen.last().map(|entry| entry.name.clone());
            let page = Listing::page(all.clone(), &ListRequest { max_entries, after });
            seen.extend(page.entries);
            prop_assert_eq!(seen.len() as u64 + page.remaining, all.len() as u64);
            if page.remaining == 0 {
                break;
            }
        }
        prop_assert_eq!(seen, all);
    }
}
