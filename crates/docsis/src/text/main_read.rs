//! The `Main { ... }` form to model.

use super::lexer::{Token, tokens};
use super::{Result, TextError, check_size, closest, normalise};
use crate::decode::Limits;
use crate::schema::{self, Kind, Scope};
use crate::tlv::{Config, Tlv};
use crate::value;

/// Parses a text in the form of the open `docsis` encoder. The result has no MICs and no pads.
///
/// A name must be one of the enclosing aggregate, so a misplaced setting is an error. Object
/// identifiers must be numeric. Settings that read another file are refused.
pub fn from_main(text: &str) -> Result<Config> {
    check_size(text)?;
    let tokens = tokens(text)?;
    let last_line = text.matches('\n').count() + 1;
    let mut parser = Parser { tokens: tokens.into_iter().peekable(), line: 1, last_line };
    match parser.next() {
        Some(Token::Word(word)) if word.eq_ignore_ascii_case("main") => {}
        _ => return parser.fail("the text must start with Main {"),
    }
    parser.expect(&Token::Open, "{ after Main")?;
    let tlvs = parser.settings(schema::top(), "Main", 1)?;
    if parser.next().is_some() {
        return parser.fail("text after the } that closes Main");
    }
    normalise(&Config::new(tlvs))
}

struct Parser {
    tokens: std::iter::Peekable<std::vec::IntoIter<(usize, Token)>>,
    line: usize,
    last_line: usize,
}

impl Parser {
    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.next();
        self.line = token.as_ref().map_or(self.last_line, |(line, _)| *line);
        token.map(|(_, token)| token)
    }

    fn fail<T>(&self, problem: impl Into<String>) -> Result<T> {
        Err(TextError::at(format!("line {}", self.line), problem))
    }

    fn expect(&mut self, wanted: &Token, what: &str) -> Result<()> {
        if self.next().as_ref() == Some(wanted) {
            Ok(())
        } else {
            self.fail(format!("expected {what}"))
        }
    }

    /// Parses settings up to and including the closing brace.
    fn settings(&mut self, scope: Scope, place: &str, depth: usize) -> Result<Vec<Tlv>> {
        let limit = Limits::default().depth;
        if depth > limit + 1 {
            return self.fail(format!("settings nested more than {limit} deep"));
        }
        let mut tlvs = Vec::new();
        loop {
            match self.next() {
                Some(Token::Close) => return Ok(tlvs),
                Some(Token::Word(word)) if word == "GenericTLV" => {
                    tlvs.push(self.generic(depth)?);
                }
                Some(Token::Word(name)) => tlvs.push(self.named(&name, scope, place, depth)?),
                Some(_) => return self.fail("expected the name of a setting or }"),
                None => {
                    return self.fail(format!("the text ends inside {place}: a }} is missing"));
                }
            }
        }
    }

    fn named(&mut self, name: &str, scope: Scope, inside: &str, depth: usize) -> Result<Tlv> {
        let by_main_name = scope.iter().find(|field| field.main_name == name);
        let found = by_main_name.or_else(|| scope.iter().find(|field| field.name == name));
        let Some(field) = found else { return self.fail(unknown(name, scope, inside)) };
        if let Kind::Aggregate(inner) | Kind::Extension(inner) = field.kind {
            self.expect(&Token::Open, &format!("{{ after {name}"))?;
            return Ok(Tlv::nested(field.code, self.settings(inner, name, depth + 1)?));
        }
        let (text, is_quoted) = self.value_text(&field.kind, name)?;
        // The encoder takes a name in quotes for its bytes, as in VPNIdentifier "VLAN100".
        if is_quoted && matches!(field.kind, Kind::Hex { .. }) && !text.starts_with("0x") {
            return Ok(Tlv::bytes(field.code, text.into_bytes()));
        }
        match value::parse(&field.kind, &text) {
            Ok(bytes) => Ok(Tlv::bytes(field.code, bytes)),
            Err(error) => self.fail(format!("{name}: {error}{}", field.in_unit())),
        }
    }

    /// Joins the words up to the semicolon to one spelling of a value. Returns, too, whether a part
    /// is in quotes.
    fn value_text(&mut self, kind: &Kind, name: &str) -> Result<(String, bool)> {
        let (mut words, mut quoted) = (Vec::new(), false);
        loop {
            match self.next() {
                Some(Token::End) => break,
                Some(Token::Word(word)) => words.push(word),
                Some(Token::Text(text)) => {
                    quoted = true;
                    words.push(text);
                }
                _ => return self.fail(format!("expected a value and ; after {name}")),
            }
        }
        let wants_text = matches!(kind, Kind::Text { .. } | Kind::TextNul { .. });
        if wants_text && !(quoted && words.len() == 1) {
            return self.fail(format!("{name} wants one string in double quotes"));
        }
        // The encoder's grammar requires a value here, and does not encode it.
        if matches!(kind, Kind::Empty) && matches!(words.as_slice(), [word] if word == "0x00") {
            words.clear();
        }
        Ok((words.join(" "), quoted))
    }

    fn number(&mut self, keyword: &str, most: usize) -> Result<usize> {
        self.expect(&Token::Word(keyword.into()), keyword)?;
        self.plain_number(keyword, most)
    }

    fn plain_number(&mut self, keyword: &str, most: usize) -> Result<usize> {
        match self.next() {
            Some(Token::Word(word)) => match word.parse() {
                Ok(number) if number <= most => Ok(number),
                _ => self.fail(format!("{keyword} accepts 0 to {most}, not {word}")),
            },
            _ => self.fail(format!("expected a number after {keyword}")),
        }
    }

    /// Parses the text after the keyword `GenericTLV`.
    fn generic(&mut self, depth: usize) -> Result<Tlv> {
        let code = self.number("TlvCode", usize::from(u8::MAX))? as u8;
        let value = match self.next() {
            Some(Token::Open) => {
                return Ok(Tlv::nested(code, self.settings(&[], "GenericTLV", depth + 1)?));
            }
            Some(Token::Word(word)) => match word.as_str() {
                "TlvLength" => {
                    let length = self.plain_number("TlvLength", usize::from(u16::MAX))?;
                    self.expect(&Token::Word("TlvValue".into()), "TlvValue")?;
                    self.generic_bytes(length)?
                }
                "TlvString" => self.generic_string("")?,
                "TlvStringZero" => self.generic_string("\0")?,
                "TlvType" => self.generic_typed()?,
                _ => return self.fail(GENERIC),
            },
            _ => return self.fail(GENERIC),
        };
        self.expect(&Token::End, ";")?;
        Ok(Tlv::bytes(code, value))
    }

    fn generic_bytes(&mut self, length: usize) -> Result<Vec<u8>> {
        let Some(Token::Word(word)) = self.next() else { return self.fail("expected 0x bytes") };
        match value::unhex(&word) {
            Ok(bytes) if bytes.len() == length => Ok(bytes),
            Ok(bytes) => {
                self.fail(format!("TlvLength is {length}, but TlvValue has {} bytes", bytes.len()))
            }
            Err(error) => self.fail(error.to_string()),
        }
    }

    fn generic_string(&mut self, end: &str) -> Result<Vec<u8>> {
        match self.next() {
            Some(Token::Text(text)) => Ok((text + end).into_bytes()),
            _ => self.fail("expected a string in double quotes"),
        }
    }

    fn generic_typed(&mut self) -> Result<Vec<u8>> {
        let number = |width| Kind::Number { width, low: 0, high: u32::MAX };
        let word = match self.next() {
            Some(Token::Word(word)) => word,
            _ => String::new(),
        };
        let kind = match word.as_str() {
            "Integer" => number(4),
            "Short" => number(2),
            "Char" => number(1),
            "IPAddress" => Kind::Ipv4,
            _ => return self.fail("TlvType accepts Integer, Short, Char or IPAddress"),
        };
        self.expect(&Token::Word("TlvValue".into()), "TlvValue")?;
        let Some(Token::Word(word)) = self.next() else { return self.fail("expected a value") };
        match value::parse(&kind, &word) {
            Ok(bytes) => Ok(bytes),
            Err(error) => self.fail(error.to_string()),
        }
    }
}

const GENERIC: &str = "after TlvCode N expected { or TlvLength, TlvString, TlvStringZero, TlvType";

fn unknown(name: &str, scope: Scope, inside: &str) -> String {
    if matches!(name, "ManufacturerCVC" | "CoSignerCVC" | "DigitMap")
        || name.ends_with("CVCChainFile")
    {
        return format!("{name} reads another file; write its bytes instead (MfgCVCData 0x...)");
    }
    let names = scope.iter().map(|field| field.main_name).filter(|name| !name.is_empty());
    let hint = match closest(name, names) {
        Some(close) => format!("did you mean {close}?"),
        None => "write GenericTLV TlvCode N TlvLength L TlvValue 0x...; for a type without a name"
            .into(),
    };
    format!("{inside} has no setting {name}; {hint}")
}
