//! Curves over the number of sandboxes alive, both axes logarithmic: a panel for each call, all with the same axes.

use super::{push, svg, text};
use crate::table::{Row, Table, number};

pub(super) const TITLE: &str = "How long calls take, the more sandboxes are alive";

/// From the names of the panels to the numbers alive.
const PLOT: (f64, f64) = (72.0, 252.0);
const HEIGHT: f64 = 292.0;
/// Before the first panel are the times.
const LEFT: f64 = 64.0;
const RIGHT: f64 = 744.0;
const GAP: f64 = 24.0;
/// Between the edge of a panel and its first point, for the number at the point.
const INSET: f64 = 28.0;

/// A logarithmic axis: two values, and where on the picture they are.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Axis {
    values: (f64, f64),
    places: (f64, f64),
}

impl Axis {
    fn place(&self, value: f64) -> f64 {
        let (low, high) = self.values;
        let all = (high / low).log10();
        // One value alone is in the middle.
        let part = if all > 0.0 { (value / low).log10() / all } else { 0.5 };
        self.places.0 + part * (self.places.1 - self.places.0)
    }
}

pub(super) fn draw(table: &Table) -> String {
    let rows: Vec<&Row> =
        table.rows.iter().filter(|row| !row.label.is_empty() && row.alive.is_some()).collect();
    let mut labels: Vec<&str> = Vec::new();
    for row in &rows {
        if !labels.contains(&row.label.as_str()) {
            labels.push(&row.label);
        }
    }
    let (lowest, highest) = range(rows.iter().flat_map(|row| [row.median(), row.percentile(99)]));
    // Below the lowest point there is its number.
    let ticks = ticks(lowest / 1.4, highest);
    let times = Axis { values: range(ticks.iter().copied()), places: (PLOT.1, PLOT.0) };
    let alive = range(rows.iter().filter_map(|row| row.alive.map(f64::from)));

    let mut body = String::new();
    text(&mut body, "s", 16.0, 24.0, "● median  ○ 99th percentile");
    let width = (RIGHT - LEFT + GAP) / f64::from(u32::try_from(labels.len().max(1)).unwrap_or(1)) - GAP;
    let mut left = LEFT;
    for tick in &ticks {
        text(&mut body, "n s", LEFT - 8.0, times.place(*tick) + 4.0, &format!("{tick} {}", table.unit));
    }
    for label in labels {
        let places = (left + INSET, left + width - INSET);
        text(&mut body, "h", left, PLOT.0 - 20.0, label);
        for tick in &ticks {
            let (y, right) = (times.place(*tick), left + width);
            push(&mut body, format_args!("<path class=\"g\" d=\"M{left:.1} {y:.1}H{right:.1}\"/>"));
        }
        let points: Vec<&Row> = rows.iter().copied().filter(|row| row.label == label).collect();
        panel(&mut body, &points, &times, &Axis { values: alive, places });
        left += width + GAP;
    }
    text(&mut body, "a", f64::midpoint(LEFT, RIGHT), HEIGHT - 6.0, "sandboxes alive");
    svg(HEIGHT, TITLE, &body)
}

fn panel(body: &mut String, points: &[&Row], times: &Axis, alive: &Axis) {
    let number_alive = |row: &Row| row.alive.unwrap_or_default();
    let x = |row: &Row| alive.place(number_alive(row).into());
    for row in points {
        text(body, "a", x(row), PLOT.1 + 16.0, &number_alive(row).to_string());
    }
    // The median last: where both are close, it lies above.
    let curves = [(99, "", "c", -9.0), (50, " ours", "d", 17.0)];
    for (percent, ours, mark, beside) in curves {
        let places: Vec<(f64, f64)> =
            points.iter().map(|row| (x(row), times.place(row.percentile(percent)))).collect();
        let line: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        push(body, format_args!("<path class=\"l{ours}\" d=\"M{}\"/>", line.join("L")));
        for (row, (x, y)) in points.iter().zip(places) {
            push(body, format_args!("<circle class=\"{mark}{ours}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>"));
            text(body, &format!("a{ours}"), x, y + beside, &number(row.percentile(percent)));
        }
    }
}

/// The least and the greatest of all values; of none, a range that can be drawn.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let both = |range: Option<(f64, f64)>, value: f64| {
        Some(range.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
    };
    values.filter(|value| value.is_finite() && *value > 0.0).fold(None, both).unwrap_or((1.0, 1.0))
}

/// The values 1, 2 and 5 times a power of ten from the last that is not above `low` to the first that is not below `high`.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let all = (-6..=6).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)));
    let all: Vec<f64> = all.collect();
    let first = all.iter().rposition(|tick| *tick <= low).unwrap_or(0);
    let last = all.iter().position(|tick| *tick >= high).unwrap_or(all.len() - 1);
    all.get(first..=last).unwrap_or_default().to_vec()
}

#[cfg(test)]
mod tests {
    use super::{Axis, draw, ticks};
    use crate::table::{Drawn, Row, Table};

    #[test]
    fn an_axis_is_logarithmic_and_has_a_middle_for_one_value() {
        let axis = Axis { values: (1.0, 100.0), places: (50.0, 250.0) };
        assert_eq!([1.0, 10.0, 100.0].map(|value| axis.place(value)), [50.0, 150.0, 250.0]);
        assert_eq!(Axis { values: (7.0, 7.0), places: (0.0, 10.0) }.place(7.0), 5.0);
    }

    #[test]
    fn ticks_enclose_what_is_drawn() {
        assert_eq!(ticks(0.6, 3.0), [0.5, 1.0, 2.0, 5.0]);
        assert_eq!(ticks(1.0, 10.0), [1.0, 2.0, 5.0, 10.0]);
    }

    #[test]
    fn each_label_is_a_panel_with_a_curve_of_medians_and_one_of_tails() {
        let row = |label: &str, alive, times: [f64; 2]| {
            Row::ours("x").drawn(label).at(alive).with_samples(times.to_vec())
        };
        let picture = draw(&Table {
            title: "T",
            drawn: Drawn::Growth,
            unit: "ms",
            rows: vec![
                row("create", 1, [1.0, 10.0]),
                row("create", 10, [2.0, 10.0]),
                row("create", 100, [2.0, 20.0]),
                row("command", 1, [1.0, 1.0]),
                row("", 1, [50.0, 50.0]),
            ],
            notes: Vec::new(),
        });
        let curves: Vec<&str> = picture.lines().filter(|line| line.contains("class=\"l")).collect();
        assert_eq!(
            curves,
            [
                "<path class=\"l\" d=\"M92.0 105.8L228.0 105.8L364.0 72.0\"/>",
                "<path class=\"l ours\" d=\"M92.0 218.2L228.0 184.4L364.0 184.4\"/>",
                "<path class=\"l\" d=\"M444.0 218.2\"/>",
                "<path class=\"l ours\" d=\"M444.0 218.2\"/>",
            ]
        );
        assert!(picture.contains(">create</text>") && picture.contains(">command</text>"));
    }
}
