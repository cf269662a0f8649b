//! The part of the document that is measured: every table and picture with the command that makes it again.

use std::fmt::Write;

use crate::cases::{Measured, NOT_YET};
use crate::picture::Picture;

/// Renders it under the description of the machine; it can be read in a terminal as well.
pub(crate) fn render(machine: &str, measured: &[Measured], pictures: &[Picture]) -> String {
    let mut text = format!("{machine}\n\n");
    for Measured { case, table } in measured {
        text.push_str(&table.markdown());
        for picture in pictures.iter().filter(|picture| picture.under == Some(case)) {
            // Writing into a text does not fail.
            write!(text, "\n![{}]({})\n", picture.title, picture.file).ok();
        }
        write!(text, "\nAgain: `cargo xtask bench --only {case}`.\n\n").ok();
    }
    text + NOT_YET + "\n"
}

#[cfg(test)]
mod tests {
    use super::render;
    use crate::cases::{Measured, NOT_YET};
    use crate::picture::Picture;
    use crate::table::{Drawn, Row, Table};

    #[test]
    fn a_picture_and_the_command_are_under_their_table() {
        let row = Row::ours("x").with_samples(vec![1.0]);
        let table =
            Table { title: "T", drawn: Drawn::Parts, unit: "KiB", rows: vec![row], notes: Vec::new() };
        let picture = |file, under| Picture { file, title: "What it shows", under, svg: String::new() };
        assert_eq!(
            render(
                "A machine.",
                &[Measured { case: "idle", table }],
                &[picture("all.svg", None), picture("its.svg", Some("idle")), picture("no.svg", Some("x"))]
            ),
            format!(
                "A machine.\n\n\
                 ### T\n\n| case | p50 KiB |\n|------|--------:|\n| x    |    1.00 |\n\n\
                 ![What it shows](its.svg)\n\n\
                 Again: `cargo xtask bench --only idle`.\n\n\
                 {NOT_YET}\n"
            )
        );
    }
}
