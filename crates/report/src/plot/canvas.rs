//! SVG whose colours are names: the page's style sheet decides light, dark and print.
//!
//! Plotters lays out axes and maps coordinates; this backend writes what it draws. Coordinates are
//! tenths of a pixel, because plotters counts in whole ones.

use std::fmt::Write as _;

use plotters::style::RGBColor;
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind,
    FontStyle, FontTransform,
};

/// Canvas units per pixel.
pub(super) const UNIT: u32 = 10;

/// Number of colours; further variants repeat them with another dash.
const COLOURS: usize = 8;

/// Line patterns; together with the colours they tell 32 variants apart, in grey too.
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
    /// Not drawn: the description of a panel for the page's script.
    Frame,
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

/// The inks' names in the style sheet. From [`FIRST_NUMBERED`] on a number follows the name.
const CLASSES: [&str; 12] =
    ["text", "muted", "grid", "axis", "band", "alert", FRAME, "a", "p", "c", "b", "h"];
const FRAME: &str = "frame";
const FIRST_NUMBERED: usize = 7;

impl Ink {
    /// Encodes the ink as a colour, because plotters passes nothing else to a backend. Red is the
    /// position in [`CLASSES`] plus one, because plotters itself draws in black; green is the variant.
    pub(super) fn color(self) -> RGBColor {
        let (class, number) = match self {
            Self::Text => (0, 0),
            Self::Muted => (1, 0),
            Self::Grid => (2, 0),
            Self::Axis => (3, 0),
            Self::Band => (4, 0),
            Self::Alert => (5, 0),
            Self::Frame => (6, 0),
            Self::Variant(variant) => (7, variant % (COLOURS * DASHES.len())),
            Self::Pale(variant) => (8, variant % COLOURS),
            Self::Solid(variant) => (9, variant % COLOURS),
            Self::Faint(variant) => (10, variant % COLOURS),
            Self::Heat(shade) => (11, shade.min(HEATS - 1)),
        };
        RGBColor(class + 1, number as u8, 0)
    }
}

/// Returns the class of the ink that a colour encodes: `text`, or `a3` for the fourth variant.
fn class(color: BackendColor) -> Result<String, NotAnInk> {
    let (red, number, _) = color.rgb;
    let class = usize::from(red).wrapping_sub(1);
    let name = CLASSES.get(class).ok_or(NotAnInk(color.rgb))?;
    Ok(if class < FIRST_NUMBERED { (*name).to_owned() } else { format!("{name}{number}") })
}

/// Something was drawn in a colour that is not an ink, so no style sheet could change it.
#[derive(Debug, thiserror::Error)]
#[error("drawn in the colour {0:?}, which is no ink")]
pub(super) struct NotAnInk((u8, u8, u8));

impl From<NotAnInk> for DrawingErrorKind<NotAnInk> {
    fn from(error: NotAnInk) -> Self {
        Self::DrawingError(error)
    }
}

/// Returns the style rules that give every ink its colour, for up to 32 variants. The variables are in
/// `colours.css`.
pub(crate) fn ink_rules() -> String {
    let mut css = String::new();
    for name in CLASSES[..FIRST_NUMBERED].iter().filter(|name| **name != FRAME) {
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

/// A plotters backend that writes SVG elements, without the `svg` element around them.
pub(super) struct Canvas<'a> {
    pub(super) body: &'a mut String,
    pub(super) width: u32,
    pub(super) height: u32,
}

impl Canvas<'_> {
    fn points(&mut self, points: impl IntoIterator<Item = BackendCoord>) {
        let mut last = None;
        for point in points {
            // Repeated pixels are invisible and make pages large.
            if last != Some(point) {
                let _ = write!(self.body, "{},{} ", pixels(point.0), pixels(point.1));
            }
            last = Some(point);
        }
        while self.body.ends_with(' ') {
            self.body.pop();
        }
    }
}

type Drawn = Result<(), DrawingErrorKind<NotAnInk>>;

impl DrawingBackend for Canvas<'_> {
    type ErrorType = NotAnInk;

    fn get_size(&self) -> (u32, u32) {
        (self.width * UNIT, self.height * UNIT)
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        Ok(())
    }

    fn draw_pixel(&mut self, point: BackendCoord, color: BackendColor) -> Drawn {
        self.draw_rect(point, (point.0 + 1, point.1 + 1), &color, true)
    }

    fn draw_line<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
    ) -> Drawn {
        if style.color().alpha == 0.0 {
            return Ok(());
        }
        let (x1, y1, x2, y2) = (pixels(from.0), pixels(from.1), pixels(to.0), pixels(to.1));
        let _ = writeln!(
            self.body,
            r#"<line {} x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>"#,
            stroke(style)?
        );
        Ok(())
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        upper_left: BackendCoord,
        bottom_right: BackendCoord,
        style: &S,
        fill: bool,
    ) -> Drawn {
        let (x, y) = (pixels(upper_left.0), pixels(upper_left.1));
        let width = pixels((bottom_right.0 - upper_left.0).max(0));
        let height = pixels((bottom_right.1 - upper_left.1).max(0));
        let paint = if fill { filled(style.color())? } else { stroke(style)? };
        let _ = writeln!(
            self.body,
            r#"<rect {paint} x="{x}" y="{y}" width="{width}" height="{height}"/>"#
        );
        Ok(())
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> Drawn {
        if style.color().alpha == 0.0 {
            return Ok(());
        }
        let _ = write!(self.body, r#"<polyline {} points=""#, stroke(style)?);
        self.points(path);
        self.body.push_str("\"/>\n");
        Ok(())
    }

    fn draw_circle<S: BackendStyle>(
        &mut self,
        center: BackendCoord,
        radius: u32,
        style: &S,
        fill: bool,
    ) -> Drawn {
        let (x, y, r) = (pixels(center.0), pixels(center.1), pixels(radius as i32));
        let paint = if fill { filled(style.color())? } else { stroke(style)? };
        let _ = writeln!(self.body, r#"<circle {paint} cx="{x}" cy="{y}" r="{r}"/>"#);
        Ok(())
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        vert: I,
        style: &S,
    ) -> Drawn {
        let _ = write!(self.body, r#"<polygon {} points=""#, filled(style.color())?);
        self.points(vert);
        self.body.push_str("\"/>\n");
        Ok(())
    }

    fn draw_text<T: BackendTextStyle>(
        &mut self,
        text: &str,
        style: &T,
        pos: BackendCoord,
    ) -> Drawn {
        let size = style.size() / f64::from(UNIT);
        let anchor = match style.anchor().h_pos {
            HPos::Left => "start",
            HPos::Right => "end",
            HPos::Center => "middle",
        };
        let below = match style.anchor().v_pos {
            VPos::Top => 0.8,
            VPos::Center => 0.34,
            VPos::Bottom => -0.2,
        };
        let (x, y) = (pixels(pos.0), f64::from(pos.1) / f64::from(UNIT) + below * size);
        let turn = match style.transform() {
            FontTransform::Rotate270 => format!(r#" transform="rotate(-90 {x} {y:.1})""#),
            _ => String::new(),
        };
        let weight = match style.style() {
            FontStyle::Bold => r#" font-weight="600""#,
            _ => "",
        };
        if class(style.color())? == FRAME {
            let _ = writeln!(self.body, "<metadata>{}</metadata>", escape(text));
            return Ok(());
        }
        let (paint, text) = (filled(style.color())?, escape(text));
        let _ = write!(self.body, r#"<text {paint} x="{x}" y="{y:.1}" font-size="{size:.1}""#);
        let _ = writeln!(self.body, r#" text-anchor="{anchor}"{weight}{turn}>{text}</text>"#);
        Ok(())
    }
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
            _ if character.is_control() => escaped.push('\u{fffd}'),
            _ => escaped.push(character),
        }
    }
    escaped
}

fn pixels(units: i32) -> String {
    let (whole, tenth) = (units / UNIT as i32, (units % UNIT as i32).abs());
    let sign = if units < 0 && whole == 0 { "-" } else { "" };
    if tenth == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{tenth}") }
}

fn stroke<S: BackendStyle>(style: &S) -> Result<String, NotAnInk> {
    let (class, width) = (class(style.color())?, pixels(style.stroke_width() as i32));
    Ok(format!(r#"class="s-{class}" fill="none" stroke-width="{width}""#))
}

fn filled(color: BackendColor) -> Result<String, NotAnInk> {
    Ok(format!(r#"class="f-{}""#, class(color)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_element() {
        assert_eq!(escape("a<b>&\"'\u{0}"), "a&lt;b&gt;&amp;&quot;&#39;\u{fffd}");
    }

    #[test]
    fn every_ink_comes_back_from_its_color_and_no_other_color_is_one() {
        let variants = [0, 7, 8, 31, 32, 100];
        let of_variant = [Ink::Variant, Ink::Solid, Ink::Pale, Ink::Faint, Ink::Heat];
        let inks = variants.iter().flat_map(|variant| of_variant.map(|ink| ink(*variant)));
        let plain =
            [Ink::Text, Ink::Muted, Ink::Grid, Ink::Axis, Ink::Band, Ink::Alert, Ink::Frame];
        let through = |RGBColor(red, green, blue)| {
            class(BackendColor { alpha: 1.0, rgb: (red, green, blue) }).ok()
        };
        let mut classes: Vec<String> =
            inks.chain(plain).filter_map(|it| through(it.color())).collect();
        assert_eq!(classes.len(), 6 * 5 + 7);
        classes.sort();
        classes.dedup();
        assert_eq!(classes.len(), 5 + 3 * 3 + 4 + 7, "variants that look alike share a class");
        assert_eq!(through(Ink::Variant(33).color()).as_deref(), Some("a1"));
        assert_eq!(through(Ink::Faint(9).color()).as_deref(), Some("b1"));
        assert_eq!(through(Ink::Muted.color()).as_deref(), Some("muted"));
        assert_eq!(through(RGBColor(0, 0, 0)), None, "black");
        assert_eq!(through(RGBColor(255, 255, 255)), None, "white");
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
    fn tenths_of_pixels_are_exact() {
        for (units, text) in [(0, "0"), (5, "0.5"), (120, "12"), (-5, "-0.5"), (-123, "-12.3")] {
            assert_eq!(pixels(units), text);
        }
    }
}
