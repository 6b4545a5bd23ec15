//! Finding the line of an error in a plan's file.

/// Returns the line, from 1, that an error is about: within the `index`th section named `section`,
/// the line of the key that the error names, or else the section's first line. The section `""` is
/// the part above all headers.
pub(super) fn line_of(text: &str, section: &str, index: usize, problem: &str) -> Option<usize> {
    let (mut seen, mut is_in, mut first, mut best) = (0, section.is_empty(), None, None);
    for (place, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            let name = header.trim_start_matches('[').split(']').next().unwrap_or_default().trim();
            is_in = name == section && {
                seen += 1;
                seen == index + 1
            };
            if is_in {
                first = Some(place + 1);
            }
        } else if is_in && let Some((key, _)) = line.split_once('=') {
            let key = key.trim();
            let is_longer = |best: &Option<(usize, usize)>| best.is_none_or(|it| key.len() > it.1);
            if is_named(problem, key) && is_longer(&best) {
                best = Some((place + 1, key.len()));
            }
        }
    }
    best.map(|(line, _)| line).or(first)
}

/// Whether a message contains the key as a whole word.
fn is_named(problem: &str, key: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    !key.is_empty() && problem.split(|letter| !is_part(letter)).any(|word| word == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_on_the_line_of_its_key() {
        let text = "title = \"x\"\n[lines]\ncount = 0\nsample = 3\n[[step]]\nname = \"a\"\n\
                    [[step]]\nname = \"b\"\nwarm_up = \"1s\"\n";
        let line = |section, index, problem| line_of(text, section, index, problem);
        assert_eq!(line("", 0, "title: too long"), Some(1));
        assert_eq!(line("lines", 0, "lines.sample: 3 is not"), Some(4));
        assert_eq!(line("lines", 0, "lines.count: 0"), Some(3));
        assert_eq!(line("step", 1, "step `b`: warm_up is"), Some(9));
        assert_eq!(line("step", 0, "step `a`: duration"), Some(5), "its first line");
        assert_eq!(line("step", 2, "step: x"), None);
    }
}
