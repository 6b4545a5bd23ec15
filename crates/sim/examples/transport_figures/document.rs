//! The page that contains the figures and numbers.

#![expect(clippy::disallowed_methods, reason = "reads and writes the documentation")]

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use underload_report::diagram::{Diagram, Panel};

pub struct Document {
    docs: PathBuf,
    page: &'static str,
    images: &'static str,
    text: String,
}

impl Document {
    /// `page`, whose pictures are in `images`, both below `docs`.
    pub fn open(page: &'static str, images: &'static str) -> Result<Self, Box<dyn Error>> {
        let docs = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let text = fs::read_to_string(docs.join(page))?;
        Ok(Self { docs, page, images, text })
    }

    pub fn figure(
        &self,
        name: &str,
        title: &str,
        panels: Vec<Panel>,
    ) -> Result<(), Box<dyn Error>> {
        let diagram = Diagram { name: name.to_owned(), title: title.to_owned(), panels };
        self.picture(name, diagram.plot().svg())
    }

    /// Writes a picture that is already drawn.
    pub fn picture(&self, name: &str, svg: String) -> Result<(), Box<dyn Error>> {
        let folder = self.docs.join(self.images);
        fs::create_dir_all(&folder)?;
        if svg.len() > MOST_BYTES {
            return Err(format!("figure {name} has {} bytes; thin its curves", svg.len()).into());
        }
        fs::write(folder.join(format!("{name}.svg")), svg)?;
        Ok(())
    }

    /// Replaces the table named `name`.
    pub fn numbers(&mut self, name: &str, table: &[String]) -> Result<(), Box<dyn Error>> {
        let table = table.join("\n");
        println!("{name}\n{table}\n");
        let start = format!("<!-- numbers: {name} -->\n");
        let page = self.page;
        let missing = || format!("{page} has no place for the numbers `{name}`");
        let from = self.text.find(&start).ok_or_else(missing)? + start.len();
        let to = from + self.text[from..].find("<!-- end -->").ok_or_else(missing)?;
        self.text.replace_range(from..to, &format!("{table}\n"));
        Ok(())
    }

    pub fn save(&self) -> Result<(), Box<dyn Error>> {
        Ok(fs::write(self.docs.join(self.page), &self.text)?)
    }
}

/// A row of a table.
pub fn row(cells: &[String]) -> String {
    format!("| {} |", cells.join(" | "))
}

/// Returns the first two rows of a table: its heads, and the alignment, which is left for the first
/// column and right for numbers.
pub fn head(cells: &[&str]) -> [String; 2] {
    let rule = vec!["---:"; cells.len() - 1].join("|");
    [format!("| {} |", cells.join(" | ")), format!("|---|{rule}|")]
}

/// Returns at most `most` of the points, evenly spaced.
pub fn thin(points: Vec<(f64, f64)>, most: usize) -> Vec<(f64, f64)> {
    let step = points.len().div_ceil(most).max(1);
    points.into_iter().step_by(step).collect()
}

/// Maximum size of a picture, because pictures are stored in the repository.
const MOST_BYTES: usize = 60_000;
