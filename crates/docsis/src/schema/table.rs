//! The tables of settings, read from `settings.txt`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::{Field, Kind, Scope};

static TOP: LazyLock<Scope> = LazyLock::new(|| Tables::parse(SETTINGS).scope("Top"));
const SETTINGS: &str = include_str!("settings.txt");

/// The settings at the top level of a file.
pub fn top() -> Scope {
    &TOP
}

/// A row as columns, and which of two alternatives is the table's.
type Row = (usize, Vec<&'static str>);

#[derive(Default)]
struct Tables {
    rows: BTreeMap<&'static str, Vec<Row>>,
    /// The scopes that are built, because one table may be inside several.
    scopes: BTreeMap<&'static str, Scope>,
}

impl Tables {
    fn parse(text: &'static str) -> Self {
        let (mut tables, mut names) = (Self::default(), "");
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(header) = line.strip_prefix('[') {
                names = header.trim_end_matches(']');
                continue;
            }
            for (index, name) in names.split('|').enumerate() {
                tables.rows.entry(name).or_default().push((index, line.split("  ").collect()));
            }
        }
        tables
    }

    /// Builds a table and the tables inside it, once in the life of the program.
    fn scope(&mut self, name: &'static str) -> Scope {
        if let Some(scope) = self.scopes.get(name) {
            return scope;
        }
        let rows = self.rows.remove(name).unwrap_or_default();
        let field = |row: &Row| {
            self.field(row).unwrap_or_else(|| unreachable!("a test reads each row: {:?}", row.1))
        };
        let mut fields: Vec<Field> = rows.iter().map(field).collect();
        fields.sort_by_key(|field| field.code);
        let scope: Scope = fields.leak();
        self.scopes.insert(name, scope);
        scope
    }

    /// Returns `None` if the row is malformed.
    fn field(&mut self, (index, columns): &Row) -> Option<Field> {
        let own = |text: &'static str| text.split('|').nth(*index).unwrap_or(text);
        let [code, name, layout, meaning, options @ ..] = columns.as_slice() else { return None };
        let mut field = Field {
            code: code.parse().ok()?,
            name,
            main_name: name,
            kind: self.kind(layout, own)?,
            unit: "",
            meaning,
            repeats: false,
            main_range: None,
        };
        for option in options {
            match option.split_once('=').unwrap_or((option, "")) {
                ("main", name) => field.main_name = own(name),
                ("unit", unit) => field.unit = unit,
                ("repeats", _) => field.repeats = true,
                ("main-range", bounds) => field.main_range = Some(range(bounds)?),
                _ => return None,
            }
        }
        Some(field)
    }

    fn kind(
        &mut self,
        layout: &'static str,
        own: impl Fn(&'static str) -> &'static str,
    ) -> Option<Kind> {
        let (word, rest) = layout.split_once(' ').unwrap_or((layout, ""));
        let number = |width| {
            let all = (0, u32::MAX >> (32 - 8 * width));
            let (low, high) = if rest.is_empty() { all } else { range(rest)? };
            Some(Kind::Number { width, low, high })
        };
        let lengths = || range(rest).map(|(low, high)| (low as usize, high as usize));
        let list = |width| lengths().map(|(low, high)| Kind::List { width, low, high });
        Some(match word {
            "u8" => number(1)?,
            "u16" => number(2)?,
            "u24" => number(3)?,
            "u32" => number(4)?,
            "u8s" => list(1)?,
            "u16s" => list(2)?,
            "text" => lengths().map(|(low, high)| Kind::Text { low, high })?,
            "name" => lengths().map(|(low, high)| Kind::TextNul { low, high })?,
            "hex" => lengths().map(|(low, high)| Kind::Hex { low, high })?,
            "ipv4" => Kind::Ipv4,
            "ipv4s" => Kind::Ipv4List,
            "ipv6" => Kind::Ipv6,
            "ipv6s" => Kind::Ipv6List,
            "prefixes" => Kind::Ipv6PrefixList,
            "ip" => Kind::Ip,
            "tagged-ip" => Kind::TaggedIp,
            "transport" => Kind::Transport,
            "mac" => Kind::Mac,
            "mac/mask" => Kind::MacMask,
            "oid" => Kind::Oid,
            "oid/denied" => Kind::WriteControl,
            "varbind" => Kind::VarBind,
            "empty" => Kind::Empty,
            "table" => Kind::Aggregate(self.scope(own(rest))),
            "extension" => Kind::Extension(self.scope(own(rest))),
            _ => return None,
        })
    }
}

fn range(text: &str) -> Option<(u32, u32)> {
    let (low, high) = text.split_once("..")?;
    Some((low.parse().ok()?, high.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_has_rows_and_is_inside_another() {
        let mut tables = Tables::parse(SETTINGS);
        tables.scope("Top");
        assert!(tables.rows.is_empty(), "unused: {:?}", tables.rows.keys());
        let empty: Vec<_> = tables.scopes.iter().filter(|(_, scope)| scope.is_empty()).collect();
        assert_eq!(empty, [(&"Nothing", &(&[] as Scope))]);
    }

    #[test]
    fn a_row_needs_its_columns_a_layout_and_known_options() {
        let mut tables = Tables::default();
        let mut is_read =
            |row: &'static str| tables.field(&(0, row.split("  ").collect())).is_some();
        assert!(is_read(
            "3  Name  u16 1..9  meaning  main=Other  unit=s  repeats  main-range=1..2"
        ));
        for row in [
            "3  Name  u16",
            "256  Name  u16  meaning",
            "3  Name  u17  meaning",
            "3  Name  u16 1  meaning",
            "3  Name  hex  meaning",
            "3  Name  u16  meaning  often",
            "3  Name  u16  meaning  main-range=1",
        ] {
            assert!(!is_read(row), "{row}");
        }
    }
}
