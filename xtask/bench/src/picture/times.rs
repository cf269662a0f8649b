//! The picture: a dot for each median, with a line to the 99th percentile, on one logarithmic axis for all panels.

use super::{push, svg, text};
use crate::table::{Drawn, Row, Table, number};

pub(super) const TITLE: &str = "How long it takes: Ringfence and others";

/// Between the names and the numbers.
const PLOT: (f64, f64) = (210.0, 610.0);
/// Milliseconds at both ends of the axis.
const AXIS: (f64, f64) = (0.1, 1000.0);
const ROW: f64 = 24.0;
const TOP: f64 = 84.0;

/// The rows that are drawn together.
struct Panel<'a> {
    title: &'a str,
    rows: Vec<Line<'a>>,
}

struct Line<'a> {
    row: &'a Row,
    /// How many times as long as ours it takes, for a peer.
    times_ours: Option<f64>,
    beside: Option<f64>,
}

/// Draws the tables that are to be drawn, as SVG.
pub(super) fn draw<'a>(tables: impl Iterator<Item = &'a Table>) -> String {
    let panels = panels(tables);
    let mut body = String::new();
    let mut y = TOP;
    let bottom = TOP + panels.iter().map(|panel| ROW * (lines(panel) + 1.9)).sum::<f64>();
    axis(&mut body, bottom);
    for panel in &panels {
        text(&mut body, "h", 16.0, y, panel.title);
        for line in &panel.rows {
            y += ROW;
            draw_line(&mut body, y, line);
        }
        y += ROW * 1.9;
    }
    svg(bottom, TITLE, &body)
}

fn lines(panel: &Panel<'_>) -> f64 {
    u32::try_from(panel.rows.len()).map_or(0.0, f64::from)
}

fn panels<'a>(tables: impl Iterator<Item = &'a Table>) -> Vec<Panel<'a>> {
    let mut panels: Vec<Panel<'a>> = Vec::new();
    for table in tables {
        let labelled = table.rows.iter().filter(|row| !row.label.is_empty());
        match (table.drawn, panels.last_mut()) {
            (Drawn::Panel, _) => {
                panels
                    .push(Panel { title: table.title, rows: labelled.map(|row| line(table, row)).collect() });
            }
            (Drawn::Below, Some(panel)) => panel.rows.extend(labelled.map(|row| line(table, row))),
            (Drawn::Beside, Some(panel)) => {
                for row in labelled {
                    let same = panel.rows.iter_mut().find(|line| line.row.label == row.label);
                    same.into_iter().for_each(|line| line.beside = Some(row.median()));
                }
            }
            (Drawn::Below | Drawn::Beside, None) | (Drawn::Growth | Drawn::Parts | Drawn::Nowhere, _) => {}
        }
    }
    for panel in &mut panels {
        panel.rows.sort_by(|one, other| one.row.median().total_cmp(&other.row.median()));
    }
    panels
}

fn line<'a>(table: &'a Table, row: &'a Row) -> Line<'a> {
    let ours = row.peer_of.and_then(|of| table.rows.get(of));
    Line { row, times_ours: ours.map(|ours| row.median() / ours.median()), beside: None }
}

fn axis(body: &mut String, bottom: f64) {
    text(body, "s", 16.0, 24.0, "● median  ━ to the 99th percentile  ○ median when cold");
    text(body, "n s", 676.0, TOP - 30.0, "median");
    text(body, "n s", 744.0, TOP - 30.0, "times ours");
    for (milliseconds, label) in
        [(0.1, "0.1 ms"), (1.0, "1 ms"), (10.0, "10 ms"), (100.0, "100 ms"), (1000.0, "1 s")]
    {
        let x = place(milliseconds);
        text(body, "a", x, TOP - 30.0, label);
        push(body, format_args!("<path class=\"g\" d=\"M{x:.1} {:.1}V{:.1}\"/>", TOP - 22.0, bottom - ROW));
    }
}

fn draw_line(body: &mut String, y: f64, line: &Line<'_>) {
    let row = line.row;
    let ours = if row.peer_of.is_none() { " ours" } else { "" };
    let middle = y - 4.5;
    let (median, tail) = (place(row.median()), place(row.percentile(99)));
    text(body, ours.trim(), 28.0, y, &row.label);
    push(body, format_args!("<path class=\"l{ours}\" d=\"M{median:.1} {middle:.1}H{tail:.1}\"/>"));
    push(body, format_args!("<circle class=\"d{ours}\" cx=\"{median:.1}\" cy=\"{middle:.1}\" r=\"5\"/>"));
    if let Some(beside) = line.beside {
        push(
            body,
            format_args!(
                "<circle class=\"c{ours}\" cx=\"{:.1}\" cy=\"{middle:.1}\" r=\"4.5\"/>",
                place(beside)
            ),
        );
    }
    text(body, &format!("n{ours}"), 676.0, y, &format!("{} ms", number(row.median())));
    if let Some(times) = line.times_ours {
        text(body, "n", 744.0, y, &number(times));
    }
}

/// Where a time is on the axis.
fn place(milliseconds: f64) -> f64 {
    let part = (milliseconds.clamp(AXIS.0, AXIS.1) / AXIS.0).log10() / (AXIS.1 / AXIS.0).log10();
    PLOT.0 + part * (PLOT.1 - PLOT.0)
}

#[cfg(test)]
mod tests {
    use super::{PLOT, draw, place};
    use crate::table::{Drawn, Row, Table};

    #[test]
    fn the_axis_is_logarithmic_and_keeps_what_is_outside_at_its_ends() {
        let middle = f64::midpoint(PLOT.0, PLOT.1);
        assert_eq!([0.0, 0.1, 10.0, 1e6].map(place), [PLOT.0, PLOT.0, middle, PLOT.1]);
    }

    #[test]
    fn rows_with_a_label_are_drawn_with_what_belongs_beside_them() {
        let row = |label: &str, time| Row::ours(label).drawn(label).with_samples(vec![time, time]);
        let table = |title, drawn, rows| Table { title, drawn, unit: "ms", rows, notes: Vec::new() };
        let tables = [
            table("hot", Drawn::Panel, vec![row("a", 2.0), Row::ours("unlabelled").with_samples(vec![1.0])]),
            table("cold", Drawn::Beside, vec![row("a", 20.0)]),
            table("not drawn", Drawn::Nowhere, vec![row("z", 1.0)]),
        ];
        let picture = draw(tables.iter());
        let count = |what: &str| picture.matches(what).count();
        assert_eq!(
            [count("class=\"d "), count("class=\"c "), count(">hot<"), count("z</text>")],
            [1, 1, 1, 0]
        );
        assert!(!picture.contains("unlabelled") && !picture.contains("not drawn"));
    }
}
