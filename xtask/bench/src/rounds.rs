//! Interleaved rounds and what is reported of them.

use std::time::Duration;

/// The times of one case.
#[derive(Debug)]
pub(crate) struct Series {
    name: String,
    times: Vec<Duration>,
}

impl Series {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), times: Vec::new() }
    }

    pub(crate) fn add(&mut self, time: Duration) {
        self.times.push(time);
    }

    /// Returns the time that `percent` of all stay at or under, in milliseconds.
    fn percentile(&self, percent: usize) -> f64 {
        let mut sorted = self.times.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    }
}

/// Renders a table; the first series is ours, and the ratio of a row is ours divided by it.
pub(crate) fn table(title: &str, series: &[Series], absent: &[String]) -> String {
    let mut text =
        format!("\n### {title}\n\n| case | p50 ms | p99 ms | ours / this |\n|---|---:|---:|---:|\n");
    let ours = series.first().map_or(f64::NAN, |first| first.percentile(50));
    for (index, case) in series.iter().enumerate() {
        let (middle, tail) = (case.percentile(50), case.percentile(99));
        let ratio = if index == 0 { String::new() } else { format!("{:.2}", ours / middle) };
        text.push_str(&format!("| {} | {middle:.2} | {tail:.2} | {ratio} |\n", case.name));
    }
    for missing in absent {
        text.push_str(&format!("\nNot measured: {missing}.\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Series, table};

    #[test]
    fn ratios_divide_ours_by_the_peer() {
        let mut ours = Series::new("ours");
        let mut peer = Series::new("peer");
        for milliseconds in 1..=100 {
            ours.add(Duration::from_millis(milliseconds));
            peer.add(Duration::from_millis(milliseconds * 2));
        }
        let text = table("t", &[ours, peer], &["x: it is not installed".to_owned()]);
        assert!(text.contains("| ours | 50.00 | 99.00 |  |"), "{text}");
        assert!(text.contains("| peer | 100.00 | 198.00 | 0.50 |"), "{text}");
        assert!(text.contains("Not measured: x: it is not installed."), "{text}");
    }
}
