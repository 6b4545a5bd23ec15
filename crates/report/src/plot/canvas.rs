//! SVG whose colours are names: the page's style sheet decides light, dark and print.
//!
//! Plotters lays out axes and maps coordinates; this backend writes what it draws. A colour's red
//! byte is the role of the ink, its green byte the arm. Coordinates are tenths of a pixel, because
//! plotters counts in whole ones.

use std::convert::Infallible;
use std::fmt::Write as _;

use plotters::style::RGBColor;
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind,
    FontStyle, FontTransform,
};

/// Units of a pixel.
pub(super) const UNIT: u32 = 10;

/// Colours that repeat after this many arms, each time with another dash.
const COLOURS: usize = 8;

/// Line patterns; together with the colours they tell 32 arms apart, in grey too.
const DASHES: [&str; 4] = ["none", "6 3", "1.5 2.5", "8 3 1.5 3"];

/// What a mark is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ink {
    /// Titles and values.
    Text,
    /// Tick labels and axis names.
    Muted,
    /// Grid lines.
    Grid,
    /// Axis lines.
    Axis,
    /// The background of the load phase.
    Band,
    /// Losses and drops.
    Alert,
    /// An arm, by its position.
    Arm(usize),
    /// An arm without its dash: for a curve that stands alone.
    Solid(usize),
    /// An arm's area or range: as the arm, paler.
    Pale(usize),
    /// The band around an arm's curve: so pale that a curve shows through two of them.
    Faint(usize),
}

impl Ink {
    pub(super) fn color(self) -> RGBColor {
        match self {
            Ink::Text => RGBColor(1, 0, 0),
            Ink::Muted => RGBColor(2, 0, 0),
            Ink::Grid => RGBColor(3, 0, 0),
            Ink::Axis => RGBColor(4, 0, 0),
            Ink::Band => RGBColor(5, 0, 0),
            Ink::Alert => RGBColor(6, 0, 0),
            Ink::Arm(arm) => RGBColor(7, (arm % (COLOURS * DASHES.len())) as u8, 0),
            Ink::Solid(arm) => RGBColor(9, (arm % COLOURS) as u8, 0),
            Ink::Pale(arm) => RGBColor(8, (arm % COLOURS) as u8, 0),
            Ink::Faint(arm) => RGBColor(10, (arm % COLOURS) as u8, 0),
        }
    }

    fn name(color: BackendColor) -> String {
        match color.rgb.0 {
            1 => "text".to_owned(),
            3 => "grid".to_owned(),
            4 => "axis".to_owned(),
            5 => "band".to_owned(),
            6 => "alert".to_owned(),
            7 => format!("a{}", color.rgb.1),
            8 => format!("p{}", color.rgb.1),
            9 => format!("c{}", color.rgb.1),
            10 => format!("b{}", color.rgb.1),
            _ => "muted".to_owned(),
        }
    }
}

/// The rules that give every ink its colour, for up to 32 arms. The variables are in `colours.css`.
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
    for arm in 0..COLOURS * DASHES.len() {
        let (colour, dash) = (arm % COLOURS, DASHES[(arm + arm / COLOURS) % DASHES.len()]);
        let _ = write!(css, ".s-a{arm}{{stroke:var(--c{colour});stroke-dasharray:{dash}}}");
        let _ = write!(css, ".f-a{arm}{{fill:var(--c{colour})}}");
    }
    css
}

/// A plotters backend that writes SVG elements (without the `svg` element around them).
pub(super) struct Canvas<'a> {
    pub(super) body: &'a mut String,
    pub(super) width: u32,
    pub(super) height: u32,
}

impl Canvas<'_> {
    fn points(&mut self, points: impl IntoIterator<Item = BackendCoord>) {
        let mut last = None;
        for point in points {
            // Repeated pixels say nothing and make pages large.
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

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

impl DrawingBackend for Canvas<'_> {
    type ErrorType = Infallible;

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
            stroke(style)
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
        let paint = if fill { filled(style.color()) } else { stroke(style) };
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
        let _ = write!(self.body, r#"<polyline {} points=""#, stroke(style));
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
        let paint = if fill { filled(style.color()) } else { stroke(style) };
        let _ = writeln!(self.body, r#"<circle {paint} cx="{x}" cy="{y}" r="{r}"/>"#);
        Ok(())
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        vert: I,
        style: &S,
    ) -> Drawn {
        let _ = write!(self.body, r#"<polygon {} points=""#, filled(style.color()));
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
        let _ = writeln!(
            self.body,
            r#"<text {} x="{x}" y="{y:.1}" font-size="{size:.1}" text-anchor="{anchor}"{weight}{turn}>{}</text>"#,
            filled(style.color()),
            escape(text)
        );
        Ok(())
    }
}

/// Text as it may stand in HTML, in SVG, and in a quoted attribute of either.
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
            // XML has no way to write other control characters.
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

fn stroke<S: BackendStyle>(style: &S) -> String {
    let width = pixels(style.stroke_width() as i32);
    format!(r#"class="s-{}" fill="none" stroke-width="{width}""#, Ink::name(style.color()))
}

fn filled(color: BackendColor) -> String {
    format!(r#"class="f-{}""#, Ink::name(color))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_element() {
        assert_eq!(escape("a<b>&\"'\u{0}"), "a&lt;b&gt;&amp;&quot;&#39;\u{fffd}");
    }

    #[test]
    fn thirty_two_arms_differ_in_colour_or_dash() {
        let rules = ink_rules();
        let mut seen = std::collections::BTreeSet::new();
        for arm in 0..COLOURS * DASHES.len() {
            let start = format!(".s-a{arm}{{");
            let (_, rest) = rules.split_once(&start).expect("a rule per arm");
            assert!(seen.insert(rest.split('}').next()), "arm {arm} looks like another");
        }
    }

    #[test]
    fn tenths_of_pixels_are_exact() {
        for (units, text) in [(0, "0"), (5, "0.5"), (120, "12"), (-5, "-0.5"), (-123, "-12.3")] {
            assert_eq!(pixels(units), text);
        }
    }
}
