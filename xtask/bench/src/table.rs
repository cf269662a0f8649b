//! What is reported: rows with their samples, and the tables they make.

use std::time::Duration;

/// With fewer samples the 99th percentile is the worst of a few.
const LEAST_FOR_A_TAIL: usize = 20;

/// What a row has to keep to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Target {
    /// The median, and the 99th percentile if any, in the unit of the table.
    AtMost(f64, Option<f64>),
    /// The median, as so many times the median of the row with this number.
    Times(f64, usize),
    /// So much per second, in GB, by the median of a time in milliseconds for so many bytes.
    Throughput { gigabytes: f64, bytes: f64 },
    /// At least so many per second.
    PerSecond(f64),
}

/// One case and what was measured of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// A shorter name, for the picture.
    pub(crate) label: String,
    /// The row of ours that this one is compared with, by its place in the table; none for our own.
    pub(crate) peer_of: Option<usize>,
    pub(crate) samples: Vec<f64>,
    /// How many sandboxes were alive meanwhile, where that is the question.
    pub(crate) alive: Option<u32>,
    /// How many there were per second, where several were at work or the rate is the question.
    per_second: Option<f64>,
    /// Runs that failed and are not among the samples.
    pub(crate) failures: usize,
    targets: Vec<Target>,
}

impl Row {
    /// A case of ours.
    pub(crate) fn ours(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            label: String::new(),
            peer_of: None,
            samples: Vec::new(),
            alive: None,
            per_second: None,
            failures: 0,
            targets: Vec::new(),
        }
    }

    /// A case to compare ours with, which is given by its place in the table.
    pub(crate) fn peer(name: &str, of: usize) -> Self {
        Self { peer_of: Some(of), ..Self::ours(name) }
    }

    /// Shows the row in the picture under this name.
    pub(crate) fn drawn(mut self, label: &str) -> Self {
        label.clone_into(&mut self.label);
        self
    }

    pub(crate) fn target(mut self, target: Target) -> Self {
        self.targets.push(target);
        self
    }

    pub(crate) fn with_samples(mut self, samples: Vec<f64>) -> Self {
        self.samples = samples;
        self
    }

    /// Measured with so many sandboxes alive: the place of the row on the axis of a curve.
    pub(crate) fn at(mut self, alive: u32) -> Self {
        self.alive = Some(alive);
        self
    }

    /// All samples together took so long, which makes a rate.
    pub(crate) fn in_all(mut self, took: Duration) -> Self {
        let count = u32::try_from(self.samples.len()).unwrap_or(u32::MAX);
        self.per_second = Some(f64::from(count) / took.as_secs_f64());
        self
    }

    /// The most that a target asks of the median, if one does.
    pub(crate) fn most(&self) -> Option<f64> {
        self.targets.iter().find_map(|target| match target {
            Target::AtMost(median, _) => Some(*median),
            _ => None,
        })
    }

    /// Returns the value that `percent` of all samples stay at or under.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let mut sorted = self.samples.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn median(&self) -> f64 {
        self.percentile(50)
    }
}

/// What becomes of a table in the picture. Only rows that have a label are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Drawn {
    /// A panel of its own.
    Panel,
    /// More rows of the panel before.
    Below,
    /// A second mark on the rows of the panel before that have the same labels.
    Beside,
    /// A picture of its own: curves over the number alive, one for all rows that have the same label.
    Growth,
    /// A picture of its own: the parts of a sum, which is the last row.
    Parts,
    /// Nothing.
    Nowhere,
}

/// Rows that were measured together.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Table {
    pub(crate) title: &'static str,
    pub(crate) drawn: Drawn,
    pub(crate) unit: &'static str,
    pub(crate) rows: Vec<Row>,
    /// Sentences under the table: what is missing and why, and what else was counted.
    pub(crate) notes: Vec<String>,
}

impl Table {
    /// Renders the table; columns are padded, so that it can be read in a terminal as well.
    pub(crate) fn markdown(&self) -> String {
        let header = [
            "case",
            &format!("p50 {}", self.unit),
            &format!("p99 {}", self.unit),
            "per second",
            "ours / this",
            "target",
            "reached",
        ];
        let mut lines: Vec<_> = self.rows.iter().map(|row| self.cells(row)).collect();
        // A table that could not be measured is its notes alone.
        if !lines.is_empty() {
            lines.insert(0, header.map(str::to_owned));
        }
        // A column that no row fills says nothing.
        let shown: Vec<usize> = (0..header.len())
            .filter(|&column| lines.iter().skip(1).any(|line| !line[column].is_empty()))
            .collect();
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let is_number = |column: usize| (1..=4).contains(&column);
        let mut text = format!("### {}\n\n", self.title);
        for (index, line) in lines.iter().enumerate() {
            for &column in &shown {
                let (cell, width) = (&line[column], width(column));
                text.push_str(&if is_number(column) {
                    format!("| {cell:>width$} ")
                } else {
                    format!("| {cell:<width$} ")
                });
            }
            text.push_str("|\n");
            if index == 0 {
                for &column in &shown {
                    let dashes = "-".repeat(width(column) + 1);
                    text.push_str(&if is_number(column) {
                        format!("|{dashes}:")
                    } else {
                        format!("|{dashes}-")
                    });
                }
                text.push_str("|\n");
            }
        }
        let failed = self.rows.iter().filter(|row| row.failures > 0);
        let failed = failed.map(|row| format!("{}: {} more runs failed.", row.name, row.failures));
        let notes: Vec<String> = self.notes.iter().cloned().chain(failed).map(|note| note + "\n").collect();
        if !lines.is_empty() && !notes.is_empty() {
            text.push('\n');
        }
        text + &notes.join("\n")
    }

    fn cells(&self, row: &Row) -> [String; 7] {
        let tail =
            if row.samples.len() < LEAST_FOR_A_TAIL { String::new() } else { number(row.percentile(99)) };
        let rate = row.per_second.map_or_else(String::new, |rate| format!("{rate:.0}"));
        let ours = row.peer_of.and_then(|of| self.rows.get(of));
        let ratio = ours.map_or_else(String::new, |ours| format!("{:.2}", ours.median() / row.median()));
        let (targets, verdicts): (Vec<_>, Vec<_>) =
            row.targets.iter().map(|target| self.judge(row, *target)).unzip();
        [row.name.clone(), number(row.median()), tail, rate, ratio, targets.join("; "), verdicts.join("; ")]
    }

    /// The target in words, and whether it is reached; where it is a ratio or a rate, how much it is.
    fn judge(&self, row: &Row, target: Target) -> (String, String) {
        let verdict = |reached: bool| if reached { "yes" } else { "**no**" };
        match target {
            Target::AtMost(median, None) => {
                (format!("≤ {median}"), verdict(row.median() <= median).to_owned())
            }
            Target::AtMost(median, Some(tail)) => {
                let reached = [row.median() <= median, row.percentile(99) <= tail];
                (format!("≤ {median} / {tail}"), reached.map(verdict).join(" / "))
            }
            Target::Times(most, of) => {
                let Some(other) = self.rows.get(of) else { return (String::new(), String::new()) };
                let times = row.median() / other.median();
                (format!("≤ {most:?} × {}", other.label), format!("{}: {times:.2}", verdict(times <= most)))
            }
            Target::Throughput { gigabytes, bytes } => {
                let reached = bytes / row.median() / 1e6;
                (format!("≥ {gigabytes} GB/s"), format!("{}: {reached:.1}", verdict(reached >= gigabytes)))
            }
            Target::PerSecond(least) => {
                let reached = row.per_second.is_some_and(|rate| rate >= least);
                (format!("≥ {least} per second"), verdict(reached).to_owned())
            }
        }
    }
}

/// Three significant digits at most, as far as they mean anything.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Drawn, Row, Table, Target};

    fn up_to(count: u32, times: f64) -> Vec<f64> {
        (1..=count).map(|n| f64::from(n) * times).collect()
    }

    #[test]
    fn ratios_divide_ours_by_the_peer_and_targets_are_judged() {
        let ours = Row::ours("ours").target(Target::AtMost(50.0, Some(98.0))).target(Target::Times(0.4, 1));
        let table = Table {
            title: "Title",
            drawn: Drawn::Panel,
            unit: "ms",
            rows: vec![
                ours.with_samples(up_to(100, 1.0)),
                Row::peer("a peer", 0).drawn("peer").with_samples(up_to(100, 2.0)),
            ],
            notes: vec!["Not measured: x.".to_owned()],
        };
        assert_eq!(
            table.markdown(),
            "### Title\n\n\
             | case   | p50 ms | p99 ms | ours / this | target                  | reached                    |\n\
             |--------|-------:|-------:|------------:|-------------------------|----------------------------|\n\
             | ours   |   50.0 |   99.0 |             | ≤ 50 / 98; ≤ 0.4 × peer | yes / **no**; **no**: 0.50 |\n\
             | a peer |    100 |    198 |        0.50 |                         |                            |\n\
             \nNot measured: x.\n"
        );
    }

    #[test]
    fn columns_without_content_are_left_out() {
        let throughput = Target::Throughput { gigabytes: 2.0, bytes: 67e6 };
        let row = Row::ours("write").target(throughput).with_samples(vec![20.0]);
        let table =
            Table { title: "T", drawn: Drawn::Nowhere, unit: "ms", rows: vec![row], notes: Vec::new() };
        assert_eq!(
            table.markdown(),
            "### T\n\n\
             | case  | p50 ms | target   | reached  |\n\
             |-------|-------:|----------|----------|\n\
             | write |   20.0 | ≥ 2 GB/s | yes: 3.4 |\n"
        );
    }

    #[test]
    fn a_rate_is_all_samples_over_the_time_they_took_together() {
        let two_at_once =
            |least| Row::ours("x").with_samples(vec![4.0; 6]).in_all(Duration::from_millis(12)).target(least);
        let table = Table {
            title: "T",
            drawn: Drawn::Nowhere,
            unit: "ms",
            rows: vec![two_at_once(Target::PerSecond(500.0)), two_at_once(Target::PerSecond(501.0))],
            notes: Vec::new(),
        };
        assert_eq!(
            table.markdown(),
            "### T\n\n\
             | case | p50 ms | per second | target           | reached |\n\
             |------|-------:|-----------:|------------------|---------|\n\
             | x    |   4.00 |        500 | ≥ 500 per second | yes     |\n\
             | x    |   4.00 |        500 | ≥ 501 per second | **no**  |\n"
        );
    }
}
