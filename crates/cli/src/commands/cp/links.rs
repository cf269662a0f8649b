//! Which links may be made.

use ringfence::TreePath;

/// Says why a link must not be made; nothing if it stays in the tree wherever that is put.
///
/// Steps back are taken from the directory that the link lies in, which is a directory; so they count only at the start. After a name, which
/// may itself be a link to another place of the tree, a step back could lead anywhere (S40).
pub(super) fn leads_out(path: &TreePath, target: &[u8]) -> Option<&'static str> {
    let Some((parent, _)) = path.split() else { return Some("a link cannot be the tree itself") };
    if target.first() == Some(&b'/') {
        return Some("its link leads to an absolute path");
    }
    let mut room = parent.names().count();
    let mut begun = false;
    for name in target.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." if begun => return Some("its link leads back after a name"),
            b".." if room == 0 => return Some("its link leads out of what is copied"),
            b".." => room -= 1,
            _ => begun = true,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> TreePath {
        text.split('/').fold(TreePath::root(), |path, name| path.join(name.as_bytes()).unwrap())
    }

    #[test]
    fn s_40_a_link_stays_in_its_tree_or_is_not_made() {
        for (from, to) in [
            ("a", "b"),
            ("a", "b/c/"),
            ("a", "."),
            ("a", "./b"),
            ("d/a", "../b"),
            ("d/e/a", "../../b"),
            ("d/e/a", "..//.././b"),
            ("d/a", ".."),
            ("a", "..."),
            ("a", "b..c"),
        ] {
            assert_eq!(leads_out(&path(from), to.as_bytes()), None, "{from} -> {to}");
        }
        for (from, to) in [
            ("a", "/etc/passwd"),
            ("a", "/"),
            ("a", ".."),
            ("a", "../b"),
            ("d/a", "../../b"),
            ("d/a", "./../.././b"),
            ("a", "b/../../c"),
            ("a", "b/.."),
            ("d/a", "x/../../.."),
        ] {
            assert!(leads_out(&path(from), to.as_bytes()).is_some(), "{from} -> {to}");
        }
        assert!(leads_out(&TreePath::root(), b"a").is_some());
    }
}
