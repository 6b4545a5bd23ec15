//! A plot as an SVG element, and the style sheet that colours it.

use super::canvas::{escape, ink_rules};

/// Colours for light, dark and print; [`ink_rules`] uses them.
const COLOURS: &str = include_str!("colours.css");

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plot {
    /// File name without the ending, for example `cdf-mean`.
    pub name: String,
    pub title: String,
    /// Explains how to read the plot: windows, counts, omissions.
    pub caption: String,
    /// Content of the `svg` element.
    pub(super) body: String,
    pub(super) width: u32,
    pub(super) height: u32,
}

impl Plot {
    /// Returns the `svg` element without styles, for a page that includes [`style_sheet`].
    pub fn inline(&self) -> String {
        self.element("")
    }

    /// Returns the content of a standalone SVG file, with the styles.
    pub fn svg(&self) -> String {
        let style = format!(
            "<style>\n{COLOURS}{}\nsvg.plot {{ background: var(--paper); }}\n</style>\n",
            ink_rules()
        );
        self.element(&style)
    }

    fn element(&self, style: &str) -> String {
        let (title, body) = (escape(&self.title), &self.body);
        let (width, height) = (self.width, self.height);
        format!(
            "<svg class=\"plot\" xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" \
             viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n\
             <title>{title}</title>\n{style}{body}</svg>\n"
        )
    }
}

/// Returns the style sheet of pages and of the plots in them, for light mode, dark mode and print.
pub fn style_sheet() -> String {
    format!("{COLOURS}{}{}\n", include_str!("../page/page.css"), ink_rules())
}
