//! `cargo xtask same-code BASE`: shows that changes since a commit are changes of texts alone.
//!
//! The tokens of each changed source file, without comments and documentation, must be those of
//! its version in BASE. The formatter's trailing commas, which come and go with comments, do not
//! count. Documentation that a derive or a macro turns into help texts counts as text.

use std::fs;

use anyhow::{Context, bail};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::pages::has_extension;
use crate::process::git;

/// Compares the source files of the working tree with those of the commit `base`.
pub fn check(base: &str) -> anyhow::Result<()> {
    // Without renames: a file that moved is a change of code.
    let listed = git(&["diff", "--name-only", "--no-renames", "-z", base])?;
    let changed = listed.split('\0').filter(|file| !file.is_empty());
    let (sources, others): (Vec<_>, Vec<_>) = changed.partition(|file| has_extension(file, "rs"));
    let mut different = 0;
    for file in &sources {
        let new = fs::read_to_string(file);
        let problem = match (git(&["show", &format!("{base}:{file}")]), new) {
            (Ok(old), Ok(new)) => difference(&old, &new).with_context(|| (*file).to_owned())?,
            (Err(_), _) => Some("is new".to_owned()),
            (_, Err(_)) => Some("is gone".to_owned()),
        };
        if let Some(problem) = problem {
            println!("{file}: {problem}");
            different += 1;
        }
    }
    if !others.is_empty() {
        println!("not compared, no Rust: {}", others.join(" "));
    }
    if different > 0 {
        bail!("the code of {different} of {} changed files differs", sources.len());
    }
    println!("{} changed source files have the code of {base}", sources.len());
    Ok(())
}

/// Describes the first place where the code of two texts differs.
fn difference(old: &str, new: &str) -> anyhow::Result<Option<String>> {
    let (old, new) = (code(old)?, code(new)?);
    let at = old.iter().zip(&new).position(|(old, new)| old.0 != new.0);
    let Some(at) = at.or_else(|| (old.len() != new.len()).then(|| old.len().min(new.len()))) else {
        return Ok(None);
    };
    let end = ("the end of the file".to_owned(), new.last().map_or(1, |last| last.1));
    let (before, now) = (old.get(at).unwrap_or(&end), new.get(at).unwrap_or(&end));
    Ok(Some(format!("line {}: was `{}`, is `{}`", now.1, before.0, now.0)))
}

/// Returns the tokens of a source file without comments and documentation, each with its line.
fn code(text: &str) -> anyhow::Result<Vec<(String, usize)>> {
    let tokens: TokenStream = text.parse().map_err(|error| anyhow::anyhow!("{error}"))?;
    let mut flat = Vec::new();
    flatten(tokens, &mut flat);
    Ok(flat)
}

fn flatten(tokens: TokenStream, flat: &mut Vec<(String, usize)>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut rest = tokens.as_slice();
    while let [token, after @ ..] = rest {
        if let Some(after) = after_documentation(rest) {
            rest = after;
            continue;
        }
        rest = after;
        let line = token.span().start().line;
        let TokenTree::Group(group) = token else {
            flat.push((token.to_string(), line));
            continue;
        };
        let (open, close) = match group.delimiter() {
            Delimiter::Parenthesis => ("(", ")"),
            Delimiter::Brace => ("{", "}"),
            Delimiter::Bracket => ("[", "]"),
            Delimiter::None => ("", ""),
        };
        flat.push((open.to_owned(), line));
        let start = flat.len();
        flatten(group.stream(), flat);
        // `(a,)` is a tuple of one, `(a)` is not: the comma of one alone counts.
        let commas = group.stream().into_iter().filter(is_comma).count();
        if flat.len() > start
            && flat.last().is_some_and(|(last, _)| last == ",")
            && (open != "(" || commas > 1)
        {
            flat.pop();
        }
        flat.push((close.to_owned(), group.span_close().start().line));
    }
}

fn is_comma(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(it) if it.as_char() == ',')
}

/// Returns the tokens after `#[doc = "text"]` or `#![doc = "text"]`, the form in which comments
/// with three slashes are parsed, too. `None` if the tokens begin with something else.
fn after_documentation(tokens: &[TokenTree]) -> Option<&[TokenTree]> {
    let is =
        |token: &TokenTree, sign| matches!(token, TokenTree::Punct(it) if it.as_char() == sign);
    let (hash, mut rest) = tokens.split_first()?;
    if rest.first().is_some_and(|token| is(token, '!')) {
        rest = &rest[1..];
    }
    let (TokenTree::Group(group), after) = rest.split_first()? else { return None };
    let inside: Vec<TokenTree> = group.stream().into_iter().collect();
    let is_text = matches!(inside.as_slice(), [TokenTree::Ident(doc), equals, TokenTree::Literal(_)]
        if doc == "doc" && is(equals, '='));
    (is(hash, '#') && group.delimiter() == Delimiter::Bracket && is_text).then_some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_do_not_count() {
        let old = "//! File.\n/// A function.\nfn a() {\n    // Why.\n    b(c, d)\n}\n\
                   enum E {\n    /// One.\n    A {\n        /// Two.\n        x: u8,\n    },\n}\n";
        let new = "//! A file\n//! of two lines.\nfn a() { b(c, d,) }\nenum E { A { x: u8 } }";
        assert_eq!(difference(old, new).unwrap(), None);
        assert_eq!(difference("#[doc = \"a\"]\nfn a() {}", "fn a() {}").unwrap(), None);
    }

    #[test]
    fn code_counts() {
        for (old, new, expected) in [
            ("fn a() {}", "/// A.\nfn b() {}", "line 2: was `a`, is `b`"),
            ("const A: (u8,) = B;", "const A: (u8) = B;", "line 1: was `,`, is `)`"),
            ("#[doc(hidden)]\nfn a() {}", "fn a() {}", "line 1: was `#`, is `fn`"),
            ("m!(#[doc = $a]);", "m!();", "line 1: was `#`, is `)`"),
            ("a(\"b\");", "a(\"c\");", "line 1: was `\"b\"`, is `\"c\"`"),
            ("fn a() {}\nfn b() {}", "fn a() {}", "line 1: was `fn`, is `the end of the file`"),
        ] {
            assert_eq!(difference(old, new).unwrap().as_deref(), Some(expected), "{old}");
        }
        assert!(difference("fn a() {", "").is_err());
    }
}
