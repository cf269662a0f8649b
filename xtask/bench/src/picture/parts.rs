//! A sum and its parts: each part begins where the one before it ends.

use super::{push, svg, text};
use crate::table::{Row, Table, number};

pub(super) const TITLE: &str = "What an idle sandbox costs in memory";

/// Between the names and the numbers.
const PLOT: (f64, f64) = (210.0, 610.0);
const ROW: f64 = 24.0;
const TOP: f64 = 52.0;

pub(super) fn draw(table: &Table) -> String {
    let rows: Vec<&Row> = table.rows.iter().filter(|row| !row.label.is_empty()).collect();
    let mut body = String::new();
    let Some((sum, parts)) = rows.split_last() else { return svg(TOP, TITLE, &body) };
    let most = sum.most();
    let end = sum.median().max(most.unwrap_or(0.0)).max(f64::MIN_POSITIVE);
    let place = |value: f64| PLOT.0 + value / end * (PLOT.1 - PLOT.0);
    let mut y = TOP;
    let mut begin = 0.0;
    for part in parts {
        let next = begin + part.median();
        bar(&mut body, y, part, "", table.unit, (place(begin), place(next)));
        begin = next;
        y += ROW;
    }
    bar(&mut body, y, sum, " ours", table.unit, (place(0.0), place(sum.median())));
    if let Some(most) = most {
        let x = place(most);
        text(&mut body, "a", x, TOP - 30.0, &format!("target {} {}", number(most), table.unit));
        push(&mut body, format_args!("<path class=\"t\" d=\"M{x:.1} {:.1}V{:.1}\"/>", TOP - 24.0, y + 6.0));
    }
    svg(y + 18.0, TITLE, &body)
}

fn bar(body: &mut String, y: f64, row: &Row, ours: &str, unit: &str, (from, to): (f64, f64)) {
    // What has shrunk meanwhile goes back.
    let (left, width) = (from.min(to), (to - from).abs());
    text(body, ours.trim(), 16.0, y, &row.label);
    push(
        body,
        format_args!(
            "<rect class=\"d{ours}\" x=\"{left:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"14\"/>",
            y - 11.5
        ),
    );
    text(body, &format!("n{ours}"), 688.0, y, &format!("{} {unit}", number(row.median())));
}

#[cfg(test)]
mod tests {
    use super::draw;
    use crate::table::{Drawn, Row, Table, Target};

    #[test]
    fn parts_follow_each_other_and_the_target_is_marked() {
        let row = |label: &str, value| Row::ours("x").drawn(label).with_samples(vec![value]);
        let picture = draw(&Table {
            title: "T",
            drawn: Drawn::Parts,
            unit: "KiB",
            rows: vec![
                row("one", 100.0),
                row("shrunk", -20.0),
                Row::ours("not drawn").with_samples(vec![7.0]),
                row("two", 120.0),
                row("sum", 200.0).target(Target::AtMost(400.0, None)),
            ],
            notes: Vec::new(),
        });
        let drawn: Vec<&str> =
            picture.lines().filter(|line| line.starts_with("<rect") || line.starts_with("<path")).collect();
        assert_eq!(
            drawn,
            [
                "<rect class=\"d\" x=\"210.0\" y=\"40.5\" width=\"100.0\" height=\"14\"/>",
                "<rect class=\"d\" x=\"290.0\" y=\"64.5\" width=\"20.0\" height=\"14\"/>",
                "<rect class=\"d\" x=\"290.0\" y=\"88.5\" width=\"120.0\" height=\"14\"/>",
                "<rect class=\"d ours\" x=\"210.0\" y=\"112.5\" width=\"200.0\" height=\"14\"/>",
                "<path class=\"t\" d=\"M610.0 28.0V130.0\"/>",
            ]
        );
        assert!(picture.contains(">target 400 KiB<") && !picture.contains("not drawn"));
    }
}
