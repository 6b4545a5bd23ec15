//! The words that people describe a home with: `cable 100/20 cake upload game`.

use underload_aqm::config::{Kind, Spec, Value};
use underload_aqm::rate::Rate;
use underload_aqm::registry::{QueueEntry, our_form};
use underload_record::schema::{Direction, PerDirection};

use super::home::{self, rate_of};
use super::{Question, QuestionFault, Use, fault};
use crate::keys::did_you_mean;

/// Words of people, and the words that a question has.
const ALIASES: [(&str, &str); 23] = [
    ("4g", "lte"),
    ("browsing", "page"),
    ("docsis", "cable"),
    ("downloads", "download"),
    ("dsl", "adsl"),
    ("fiber", "fibre"),
    ("film", "video"),
    ("games", "game"),
    ("gaming", "game"),
    ("meeting", "call"),
    ("netflix", "video"),
    ("pages", "page"),
    ("satellite", "low-orbit"),
    ("shaper", "cake"),
    ("sqm", "cake"),
    ("starlink", "low-orbit"),
    ("streaming", "video"),
    ("teams", "call"),
    ("uploads", "upload"),
    ("videocall", "call"),
    ("web", "page"),
    ("youtube", "video"),
    ("zoom", "call"),
];

/// Words between the others.
const FILLERS: [&str; 11] =
    ["+", "a", "and", "at", "line", "mbit", "mbit/s", "on", "router", "the", "with"];

/// Characters of an unknown word that its fault shows.
const WORD_CHARS: usize = 40;

/// What the words say: options of `underload try` with their values.
type Said = Vec<(&'static str, String)>;

impl Question {
    /// Sets the line to what the words describe, in any order: its name, its rates, a queue for the
    /// router, and what is sent. Returns the options that the other words stand for.
    ///
    /// # Errors
    /// Returns the word that is unknown, and what is accepted.
    pub fn of_words(&mut self, words: &[String]) -> Result<Said, QuestionFault> {
        let (mut said, mut rates) = (Said::new(), None);
        for typed in words.iter().flat_map(|word| word.split([' ', '+', ','])) {
            let word = typed.to_lowercase();
            let word = ALIASES.iter().find(|(known, _)| *known == word).map_or(&*word, |it| it.1);
            let transfers = ["upload", "download"].into_iter();
            let mut uses = transfers.chain(Use::ALL.map(Use::name));
            if let Some(name) = uses.find(|name| *name == word) {
                said.push((name, String::new()));
            } else if word.starts_with(|c: char| c.is_ascii_digit()) {
                // `cake at 90/18`: rates behind those of the line are the router's.
                match said.last_mut() {
                    _ if rates.is_none() => rates = Some(home::down_and_up(word)),
                    Some(("router", queue)) if !queue.contains('@') => {
                        *queue = format!("{queue}@{word}");
                    }
                    _ => return Err(unknown(typed)),
                }
            } else if is_router(word) {
                said.push(("router", word.to_owned()));
            } else if home::lines().any(|line| line == word) {
                if let Some(first) = &self.line {
                    return Err(fault(
                        typed,
                        format!("a second line beside {first}; expected one"),
                    ));
                }
                self.of_line(word);
            } else if !FILLERS.contains(&word) && !word.is_empty() {
                return Err(unknown(typed));
            }
        }
        for (direction, rate) in rates.iter().flat_map(PerDirection::iter) {
            match self.line.clone() {
                Some(_) if self.set_rate(direction, rate) => {}
                // The fault of the scenario says what is wrong with the rate.
                Some(_) if rate_of(rate).is_none() => self.links[direction].clone_from(rate),
                Some(name) => {
                    let problem = "its rate varies; expected no rates beside its name";
                    return Err(fault(&name, problem.to_owned()));
                }
                None => self.links[direction].clone_from(rate),
            }
        }
        Ok(said)
    }

    /// Sets a rate of a named line, which stays what it is, with a buffer of the same time. Returns
    /// whether it is such a line, and its rate does not vary.
    pub(super) fn set_rate(&mut self, direction: Direction, rate: &str) -> bool {
        let scaled = scaled(&self.links[direction], &self.installed[direction], rate);
        let (Some(name), Some((link, queue))) = (&self.line, scaled) else { return false };
        self.line = Some(format!("{name}, {rate} {direction}"));
        (self.links[direction], self.installed[direction]) = (link, queue);
        true
    }
}

/// Returns a link and its queue at another rate; `None` if the link's rate varies, or the other is
/// wrong.
fn scaled(link: &str, queue: &str, rate: &str) -> Option<(String, String)> {
    let (old, new) = (rate_of(link)?.bits_per_second(), rate_of(rate)?.bits_per_second());
    let scale = |n: u64| (u128::from(n) * u128::from(new) / u128::from(old)) as u64;
    let scaled = |value: &str| match Kind::Limit.read(value).or_else(|| Kind::Rate.read(value)) {
        Some(Value::Rate(rate)) => {
            Value::Rate(Rate::from_bits_per_second(scale(rate.bits_per_second()))).to_string()
        }
        Some(Value::Bytes(bytes)) => Value::Bytes(scale(bytes)).to_string(),
        _ => value.to_owned(),
    };
    let mut link = Spec::parse(link).ok()?;
    link.name = scaled(&link.name);
    let is_plain = Kind::Rate.read(&link.name).is_some();
    let rates = ["rate", "peak"].map(Some);
    let mut has_rate = is_plain;
    for item in link.items.iter_mut().filter(|item| rates.contains(&item.key.as_deref())) {
        item.value = scaled(&item.value);
        has_rate = true;
    }
    let mut queue = Spec::parse(queue).ok()?;
    for item in queue.items.iter_mut().filter(|item| item.key.as_deref() == Some("limit")) {
        item.value = scaled(&item.value);
    }
    has_rate.then(|| (link.to_string(), queue.to_string()))
}

/// Whether a word is a queue, with or without rates, that a router can have.
fn is_router(word: &str) -> bool {
    let queue = our_form(word.split('@').next().unwrap_or_default());
    Spec::parse(&queue).is_ok_and(|spec| QueueEntry::find(&spec.name).is_some())
}

/// Says what a question accepts in place of a word.
fn unknown(word: &str) -> QuestionFault {
    let known = || {
        let uses = Use::ALL.into_iter().map(Use::name).chain(["upload", "download", "cake"]);
        uses.chain(ALIASES.iter().map(|it| it.0)).chain(home::lines())
    };
    let lines = home::lines().collect::<Vec<_>>().join(", ");
    let expected = "a queue of the router, such as cake@90/18, or what is sent: upload, download, call, \
                    game, page or video";
    let meant = did_you_mean(word, known());
    let problem =
        format!("expected DOWN/UP in Mbit/s, such as 100/20, a line ({lines}), {expected}{meant}");
    fault(&word.chars().take(WORD_CHARS).collect::<String>(), problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &str) -> Result<(Question, Said), QuestionFault> {
        let mut question = Question::default();
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        question.of_words(&words).map(|said| (question, said))
    }

    #[test]
    fn words_describe_a_home_in_any_order() {
        let (question, said) = asked("upload cable and 200/20 SQM zoom game").expect("known words");
        let options: Vec<String> =
            said.iter().map(|(name, value)| format!("{name} {value}")).collect();
        assert_eq!(options, ["upload ", "router cake", "call ", "game "]);
        assert_eq!(question.links.down, "200mbit");
        assert!(question.links.up.starts_with("docsis:rate=20mbit,burst=40KiB,peak=24mbit"));
        assert_eq!(question.installed.down, "fifo:limit=2MiB", "the same 84 ms");
        assert_eq!(question.installed.up, "fifo:limit=610KiB", "the same 250 ms");
        assert_eq!(question.line.as_deref(), Some("cable, 20mbit up, 200mbit down"));
        for words in ["16/1 cake@14/0.8", "16/1 with CAKE at 14/0.8"] {
            let (question, said) = asked(words).expect("known words");
            assert_eq!(question.links, PerDirection::new("1mbit", "16mbit").map(str::to_owned));
            assert_eq!(said, [("router", "cake@14/0.8".to_owned())]);
        }
    }

    #[test]
    fn unknown_words_are_named_with_what_is_accepted() {
        for (words, said) in [
            ("100/20 calbe", "calbe: expected DOWN/UP in Mbit/s"),
            ("calbe", "did you mean `cable`?"),
            ("lte 50/10", "lte: its rate varies"),
            ("cable lte", "lte: a second line beside cable"),
            ("100/20 50/10", "50/10: expected"),
            ("far-room", "far-room: expected"),
        ] {
            let error = asked(words).expect_err(words).to_string();
            assert!(error.contains(said), "{words}: {error}");
        }
    }

    #[test]
    fn a_wrong_rate_of_a_named_line_is_a_fault_of_the_rate() {
        let (question, _) = asked("cable 0/0").expect("known words");
        let faults = question.scenario("try").expect_err("a rate of zero");
        assert!(faults[0].to_string().starts_with("--up: "), "{}", faults[0]);
    }

    #[test]
    fn every_alias_is_a_word_of_a_question() {
        for (alias, _) in ALIASES {
            asked(alias).expect(alias);
        }
    }
}
