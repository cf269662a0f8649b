//! The pictures, as SVG: the same data makes the same text, byte for byte. They are readable on white and on black.

mod growth;
mod parts;
mod times;

use crate::cases::Measured;
use crate::table::Drawn;

const WIDTH: f64 = 760.0;

/// Colours that are legible on white and on black; where the viewer says which it is, better ones.
const STYLE: &str = "\
text{font:13px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:#6e7781}\
.h{font-weight:600;font-size:14px}text.ours{font-weight:600;fill:#2478e5}.n{text-anchor:end;font-variant-numeric:tabular-nums}\
.a{text-anchor:middle;font-size:11px}.s{font-size:11px}.g{stroke:#8c959f;stroke-opacity:.3}.t{stroke:#8c959f;stroke-dasharray:4 3}\
path{fill:none}.l{stroke:#8c959f;stroke-width:2}.d{fill:#8c959f}.c{fill:none;stroke:#8c959f;stroke-width:1.5}\
.l.ours,.c.ours{stroke:#2478e5}.d.ours{fill:#2478e5}\
@media(prefers-color-scheme:light){text{fill:#57606a}text.ours,.d.ours{fill:#0969da}.l.ours,.c.ours{stroke:#0969da}}\
@media(prefers-color-scheme:dark){text{fill:#9da7b3}text.ours,.d.ours{fill:#58a6ff}.l.ours,.c.ours{stroke:#58a6ff}}";

/// A picture that goes beside the document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Picture {
    /// Its name in the folder of the document.
    pub(crate) file: &'static str,
    /// What it shows, for who does not see it.
    pub(crate) title: &'static str,
    /// Under the table of which case it belongs; the one of all cases is at the head of the document.
    pub(crate) under: Option<&'static str>,
    pub(crate) svg: String,
}

/// Draws what there is to draw.
pub(crate) fn draw(measured: &[Measured]) -> Vec<Picture> {
    let mut pictures = Vec::new();
    if measured.iter().any(|one| one.table.drawn == Drawn::Panel) {
        pictures.push(Picture {
            file: "performance.svg",
            title: times::TITLE,
            under: None,
            svg: times::draw(measured.iter().map(|one| &one.table)),
        });
    }
    for Measured { case, table } in measured {
        let (file, title, svg) = match table.drawn {
            Drawn::Growth => ("performance-growth.svg", growth::TITLE, growth::draw(table)),
            Drawn::Parts => ("performance-memory.svg", parts::TITLE, parts::draw(table)),
            Drawn::Panel | Drawn::Below | Drawn::Beside | Drawn::Nowhere => continue,
        };
        pictures.push(Picture { file, title, under: Some(case), svg });
    }
    pictures
}

fn svg(height: f64, title: &str, body: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" role=\"img\">\
         <title>{title}</title><style>{STYLE}</style>\n{body}</svg>\n"
    )
}

fn text(body: &mut String, class: &str, x: f64, y: f64, content: &str) {
    let content = content.replace('&', "&amp;").replace('<', "&lt;");
    push(body, format_args!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{content}</text>"));
}

fn push(body: &mut String, element: std::fmt::Arguments<'_>) {
    body.push_str(&format!("{element}\n"));
}

#[cfg(test)]
mod tests {
    use super::draw;
    use crate::cases::Measured;
    use crate::table::{Drawn, Row, Table};

    #[test]
    fn each_kind_of_table_has_its_picture_and_the_same_data_the_same_one() {
        let measured = |case, drawn| Measured {
            case,
            table: Table {
                title: "T",
                drawn,
                unit: "ms",
                rows: vec![Row::ours("a").drawn("a").at(1).with_samples(vec![1.5])],
                notes: Vec::new(),
            },
        };
        let all = || {
            [
                measured("hot", Drawn::Panel),
                measured("files", Drawn::Nowhere),
                measured("idle", Drawn::Parts),
                measured("growth", Drawn::Growth),
            ]
        };
        let pictures = draw(&all());
        let places: Vec<_> = pictures.iter().map(|picture| (picture.file, picture.under)).collect();
        assert_eq!(
            places,
            [
                ("performance.svg", None),
                ("performance-memory.svg", Some("idle")),
                ("performance-growth.svg", Some("growth")),
            ]
        );
        assert_eq!(draw(&all()), pictures);
        assert_eq!(draw(&all()[1..2]), []);
    }
}
