//! Interleaved rounds and what is reported of them.

use std::time::Duration;

/// The times of one case.
#[derive(Debug)]
pub(crate) struct Series {
    name: String,
    /// The case of ours, by its place in the table, that a peer is compared with; none for our own.
    peer_of: Option<usize>,
    times: Vec<Duration>,
}

impl Series {
    /// A case of ours.
    pub(crate) fn ours(name: &str) -> Self {
        Self { name: name.to_owned(), peer_of: None, times: Vec::new() }
    }

    /// A case to compare ours with, given by its place in the table.
    pub(crate) fn peer(of: usize, name: &str) -> Self {
        Self { name: name.to_owned(), peer_of: Some(of), times: Vec::new() }
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

/// Renders a table; the ratio of a peer is our time divided by its time, so that less than 1 is faster than the peer.
pub(crate) fn table(title: &str, series: &[Series], absent: &[String]) -> String {
    let mut text =
        format!("\n### {title}\n\n| case | p50 ms | p99 ms | ours / this |\n|---|---:|---:|---:|\n");
    for case in series {
        let (middle, tail) = (case.percentile(50), case.percentile(99));
        let ours = case.peer_of.and_then(|of| series.get(of));
        let ratio = ours.map_or_else(String::new, |ours| format!("{:.2}", ours.percentile(50) / middle));
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
        let mut ours = Series::ours("ours");
        let mut peer = Series::peer(0, "peer");
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
