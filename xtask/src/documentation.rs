//! Checks that documentation is not empty of content and names its subject.

/// Documentation of at most this many words repeats a name, unless it has a number, code or a
/// link.
const FEW_WORDS: usize = 3;

/// Openings without a subject, or with a subject that the reader has to look for.
const BANNED_OPENINGS: [&str; 20] = [
    "As it", "Nobody", "None of", "Of it", "Of what", "Of which", "Of whom", "So long", "So many",
    "So much", "So often", "The same", "What it", "What no", "What of", "What there", "Where it",
    "Who", "Whoever", "Whom",
];

/// Reports documentation of a source file that is very short or opens with a riddle.
pub fn riddles(file: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut lines = (1..).zip(text.lines().map(str::trim_start)).peekable();
    while let Some((number, line)) = lines.next() {
        let Some((mark, first)) = doc_line(line) else { continue };
        let mut words: Vec<&str> = first.split_whitespace().collect();
        while let Some((_, more)) = lines.next_if(|(_, line)| line.starts_with(mark)) {
            words.extend(more[mark.len()..].split_whitespace());
        }
        let text = words.join(" ");
        let has_fact = text.contains(|it: char| it.is_ascii_digit() || "`[".contains(it));
        if words.len() <= FEW_WORDS && !has_fact {
            problems
                .push(format!("{file}:{number}: `{text}` says too little; explain or delete it"));
        }
        let opening = |banned: &&&str| {
            banned.split(' ').eq(words.iter().copied().take(banned.split(' ').count()))
        };
        if let Some(banned) = BANNED_OPENINGS.iter().find(opening) {
            problems.push(format!("{file}:{number}: opens with `{banned}`; name the thing"));
        }
    }
    problems
}

/// Splits a line of documentation into its mark and its text.
fn doc_line(line: &str) -> Option<(&'static str, &str)> {
    let mark = ["///", "//!"].into_iter().find(|mark| line.starts_with(mark))?;
    let text = &line[mark.len()..];
    (!text.starts_with('/')).then_some((mark, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_documentation_and_banned_openings_are_refused() {
        let text = "//! A file of rules.\n/// Its name.\nname: u8,\n/// Who sends the packet,\n\
                    /// and why.\nfn a() {\n    /// A count\n    /// of packets.\n\
                    //// Rule\n// Why.\n";
        let expected = [
            "a.rs:2: `Its name.` says too little; explain or delete it",
            "a.rs:4: opens with `Who`; name the thing",
        ];
        assert_eq!(riddles("a.rs", text), expected);
    }
}
