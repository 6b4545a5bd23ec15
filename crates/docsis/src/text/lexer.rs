//! Words, strings and punctuation of the `Main` form.

use super::TextError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    Open,
    Close,
    End,
    Text(String),
    Word(String),
}

/// Splits a text into tokens, each with its line.
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, TextError> {
    let mut tokens = Vec::new();
    let mut rest = text;
    let mut line = 1;
    while let Some(first) = rest.chars().next() {
        let (taken, token) = match first {
            '{' => (1, Some(Token::Open)),
            '}' => (1, Some(Token::Close)),
            ';' => (1, Some(Token::End)),
            '"' => string(rest, line)?,
            '/' if rest.starts_with("/*") => (comment(rest, line)?, None),
            first if first.is_whitespace() => (first.len_utf8(), None),
            _ => word(rest),
        };
        tokens.extend(token.map(|token| (line, token)));
        line += rest[..taken].matches('\n').count();
        rest = &rest[taken..];
    }
    Ok(tokens)
}

fn string(text: &str, line: usize) -> Result<(usize, Option<Token>), TextError> {
    let mut content = String::new();
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Ok((at + 1, Some(Token::Text(content)))),
            '\\' if chars.peek().is_some_and(|(_, next)| *next == '"') => {
                content.push('"');
                chars.next();
            }
            '\n' => break,
            char => content.push(char),
        }
    }
    Err(TextError::at(format!("line {line}"), "a string starts here and its line ends first"))
}

fn comment(text: &str, line: usize) -> Result<usize, TextError> {
    let end = text[2..].find("*/").map(|end| end + 4);
    end.ok_or_else(|| TextError::at(format!("line {line}"), "a comment starts here, no */ follows"))
}

fn word(text: &str) -> (usize, Option<Token>) {
    let ends = |char: char| char.is_whitespace() || "{};\"".contains(char);
    let end = text.find(ends).unwrap_or(text.len());
    (end, Some(Token::Word(text[..end].to_owned())))
}
