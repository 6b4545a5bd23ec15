//! SVG whose colours are names: the page's style sheet decides light, dark and print.

use std::fmt::Write as _;

use underload_record::text::shown;

/// Number of colours; further variants repeat them with another dash.
const COLOURS: usize = 8;

/// Line patterns; together with the colours they distinguish 32 variants, also in grey.
const DASHES: [&str; 4] = ["none", "6 3", "1.5 2.5", "8 3 1.5 3"];

/// Number of shades of a heat map.
pub(super) const HEATS: usize = 10;

/// Role of a mark, to which the style sheet gives a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ink {
    Text,
    /// Tick labels and axis names.
    Muted,
    Grid,
    Axis,
    /// The background of the load phase.
    Band,
    /// Lost probes and dropped packets.
    Alert,
    /// A variant, by its position.
    Variant(usize),
    /// A variant's area or range: as the variant, paler.
    Pale(usize),
    /// A variant without its dash, for a curve that is alone in its panel.
    Solid(usize),
    /// The band around a variant's curve, so pale that a curve shows through two of them.
    Faint(usize),
    /// A cell of a heat map, from 0 for the palest to [`HEATS`] - 1.
    Heat(usize),
}

impl Ink {
    /// Returns the name in the style sheet: `text`, or `a3` for the fourth variant.
    fn class(self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::Muted => "muted".to_owned(),
            Self::Grid => "grid".to_owned(),
            Self::Axis => "axis".to_owned(),
            Self::Band => "band".to_owned(),
            Self::Alert => "alert".to_owned(),
            Self::Variant(variant) => format!("a{}", variant % (COLOURS * DASHES.len())),
            Self::Pale(variant) => format!("p{}", variant % COLOURS),
            Self::Solid(variant) => format!("c{}", variant % COLOURS),
            Self::Faint(variant) => format!("b{}", variant % COLOURS),
            Self::Heat(shade) => format!("h{}", shade.min(HEATS - 1)),
        }
    }

    fn fill(self) -> String {
        format!(r#"class="f-{}""#, self.class())
    }

    fn stroke(self, width: f64) -> String {
        format!(r#"class="s-{}" fill="none" stroke-width="{}""#, self.class(), pixels(width))
    }
}

/// Returns the style rules that give every ink its colour, for up to 32 variants. The variables are in
/// `colours.css`.
pub(crate) fn ink_rules() -> String {
    let mut css = String::new();
    for name in ["text", "muted", "grid", "axis", "band", "alert"] {
        let _ = write!(css, ".s-{name}{{stroke:var(--{name})}}.f-{name}{{fill:var(--{name})}}");
    }
    for colour in 0..COLOURS {
        let _ = write!(css, ".s-c{colour}{{stroke:var(--c{colour})}}");
        let _ = write!(css, ".f-c{colour}{{fill:var(--c{colour})}}");
        let _ = write!(css, ".f-p{colour}{{fill:var(--c{colour});opacity:.35}}");
        let _ = write!(css, ".f-b{colour}{{fill:var(--c{colour});opacity:.13}}");
    }
    for shade in 0..HEATS {
        let opacity = 0.06 + 0.54 * shade as f64 / (HEATS - 1) as f64;
        let _ = write!(css, ".f-h{shade}{{fill:var(--c1);opacity:{opacity:.2}}}");
    }
    for variant in 0..COLOURS * DASHES.len() {
        let (colour, dash) =
            (variant % COLOURS, DASHES[(variant + variant / COLOURS) % DASHES.len()]);
        let _ = write!(css, ".s-a{variant}{{stroke:var(--c{colour});stroke-dasharray:{dash}}}");
        let _ = write!(css, ".f-a{variant}{{fill:var(--c{colour})}}");
    }
    css
}

/// The side of a text that is at its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Across {
    Left,
    Center,
    Right,
}

/// The height of a text that is at its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Along {
    Top,
    Center,
    Bottom,
}

/// Size in pixels, ink and anchor of a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    pub(super) size: f64,
    pub(super) ink: Ink,
    pub(super) anchor: (Across, Along),
}

pub(super) fn style(size: f64, ink: Ink, across: Across, along: Along) -> Style {
    Style { size, ink, anchor: (across, along) }
}

/// The elements of an `svg` element as they are drawn, without that element. Positions are pixels.
#[derive(Debug, Default)]
pub(super) struct Canvas {
    pub(super) body: String,
}

impl Canvas {
    /// Draws a straight line that is part of a mark: an SVG `line`, which the page's script does
    /// not treat as a curve.
    pub(super) fn line<N: Into<f64>>(&mut self, from: (N, N), to: (N, N), ink: Ink, width: f64) {
        let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(pixels);
        let stroke = ink.stroke(width);
        self.push(&format!(r#"<line {stroke} x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>"#));
    }

    pub(super) fn polyline<N: Into<f64>>(
        &mut self,
        points: impl IntoIterator<Item = (N, N)>,
        ink: Ink,
        width: f64,
    ) {
        let (stroke, points) = (ink.stroke(width), joined(points));
        self.push(&format!(r#"<polyline {stroke} points="{points}"/>"#));
    }

    /// Draws a filled outline.
    pub(super) fn polygon<N: Into<f64>>(
        &mut self,
        outline: impl IntoIterator<Item = (N, N)>,
        ink: Ink,
    ) {
        let (fill, points) = (ink.fill(), joined(outline));
        self.push(&format!(r#"<polygon {fill} points="{points}"/>"#));
    }

    /// Draws a filled rectangle between two opposite corners.
    pub(super) fn rectangle<N: Into<f64>>(&mut self, from: (N, N), to: (N, N), ink: Ink) {
        let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(Into::into);
        let (x, y) = (pixels(x1.min(x2)), pixels(y1.min(y2)));
        let (width, height) = (pixels((x2 - x1).abs()), pixels((y2 - y1).abs()));
        let fill = ink.fill();
        self.push(&format!(r#"<rect {fill} x="{x}" y="{y}" width="{width}" height="{height}"/>"#));
    }

    pub(super) fn ring<N: Into<f64>>(&mut self, at: (N, N), radius: f64, ink: Ink) {
        let (stroke, x, y, r) = (ink.stroke(1.5), pixels(at.0), pixels(at.1), pixels(radius));
        self.push(&format!(r#"<circle {stroke} cx="{x}" cy="{y}" r="{r}"/>"#));
    }

    pub(super) fn text<N: Into<f64>>(&mut self, text: &str, at: (N, N), style: Style) {
        if text.is_empty() {
            return;
        }
        let Style { size, ink, anchor } = style;
        let across = match anchor.0 {
            Across::Left => "start",
            Across::Center => "middle",
            Across::Right => "end",
        };
        let below = match anchor.1 {
            Along::Top => 0.8,
            Along::Center => 0.34,
            Along::Bottom => -0.2,
        };
        let (fill, x, y) = (ink.fill(), pixels(at.0), at.1.into() + below * size);
        let place = format!(r#"x="{x}" y="{y:.1}" font-size="{size:.1}" text-anchor="{across}""#);
        self.push(&format!("<text {fill} {place}>{}</text>", escape(text)));
    }

    /// Writes what is not drawn: the description of a panel for the page's script.
    pub(super) fn metadata(&mut self, text: &str) {
        self.push(&format!("<metadata>{}</metadata>", escape(text)));
    }

    fn push(&mut self, element: &str) {
        self.body.push_str(element);
        self.body.push('\n');
    }
}

/// Joins points for an attribute. Leaves out repeated ones, which are invisible and make pages large.
fn joined<N: Into<f64>>(points: impl IntoIterator<Item = (N, N)>) -> String {
    let mut joined: Vec<String> = Vec::new();
    for (x, y) in points {
        joined.push(format!("{},{}", pixels(x), pixels(y)));
    }
    joined.dedup();
    joined.join(" ")
}

/// Escapes text for HTML, for SVG, and for a quoted attribute of either.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(character),
            // XML cannot represent other control characters.
            _ => escaped.push(shown(character)),
        }
    }
    escaped
}

/// Formats pixels, to a tenth.
fn pixels(pixels: impl Into<f64>) -> String {
    let text = format!("{:.1}", pixels.into());
    match text.strip_suffix(".0") {
        Some("-0") => "0".to_owned(),
        Some(whole) => whole.to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_element() {
        assert_eq!(escape("a<b>&\"'\u{0}"), "a&lt;b&gt;&amp;&quot;&#39;\u{fffd}");
    }

    #[test]
    fn every_ink_has_a_rule_and_the_inks_of_many_variants_repeat() {
        let variants = [0, 7, 8, 31, 32, 100];
        let of_variant = [Ink::Variant, Ink::Solid, Ink::Pale, Ink::Faint, Ink::Heat];
        let numbered = variants.iter().flat_map(|variant| of_variant.map(|ink| ink(*variant)));
        let plain = [Ink::Text, Ink::Muted, Ink::Grid, Ink::Axis, Ink::Band, Ink::Alert];
        let rules = ink_rules();
        for ink in numbered.chain(plain) {
            let class = ink.class();
            assert!(rules.contains(&format!(".f-{class}{{")), "{class}: {rules}");
        }
        assert_eq!(Ink::Variant(33).class(), "a1");
        assert_eq!(Ink::Faint(9).class(), "b1");
        assert_eq!(Ink::Muted.class(), "muted");
    }

    #[test]
    fn thirty_two_variants_differ_in_colour_or_dash() {
        let rules = ink_rules();
        let mut seen = std::collections::BTreeSet::new();
        for variant in 0..COLOURS * DASHES.len() {
            let start = format!(".s-a{variant}{{");
            let (_, rest) = rules.split_once(&start).expect("a rule per variant");
            assert!(seen.insert(rest.split('}').next()), "variant {variant} looks like another");
        }
    }

    #[test]
    fn positions_are_tenths_of_pixels() {
        let texts = [0.0, 0.5, 12.0, -0.5, -12.3, 0.04, -0.04].map(pixels);
        assert_eq!(texts, ["0", "0.5", "12", "-0.5", "-12.3", "0", "0"]);
        let mut canvas = Canvas::default();
        canvas.polyline([(0.0, 1.0), (0.01, 1.0), (2.0, 1.0)], Ink::Grid, 1.5);
        assert!(canvas.body.contains(r#"points="0,1 2,1""#), "{}", canvas.body);
        canvas.rectangle((3, 4), (1, 2), Ink::Band);
        assert!(canvas.body.contains(r#"x="1" y="2" width="2" height="2""#), "{}", canvas.body);
    }
}
