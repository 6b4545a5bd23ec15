//! The words that people describe a home with: `cable 100/20 cake upload game`.

use underload_aqm::config::{Kind, Spec, Value};
use underload_aqm::rate::Rate;
use underload_aqm::registry::{QueueEntry, our_form};
use underload_record::schema::{Direction, PerDirection};

use super::home::{self, check_rate, rate_of};
use super::{Question, QuestionFault, Use, fault};
use crate::keys::did_you_mean;
use crate::simulated_controls;

/// Words of people, and the words that a question has.
const ALIASES: &[(&str, &str)] = &[
    ("4g", "lte"),
    ("browsing", "page"),
    ("docsis", "cable"),
    ("dsl", "adsl"),
    ("fiber", "fibre"),
    ("film", "video"),
    ("ftth", "fibre"),
    ("glasfaser", "fibre"),
    ("homeoffice", "call"),
    ("kabel", "cable"),
    ("playstation", "game"),
    ("ps5", "game"),
    ("twitch", "video"),
    ("xbox", "game"),
    ("gaming", "game"),
    ("meeting", "call"),
    ("netflix", "video"),
    ("ping", "rtt"),
    ("policed", "policer"),
    ("shaper", "cake"),
    ("sqm", "cake"),
    ("starlink", "low-orbit"),
    ("streaming", "video"),
    ("teams", "call"),
    ("videocall", "call"),
    ("web", "page"),
    ("wi-fi", "wifi"),
    ("wlan", "wifi"),
    ("youtube", "video"),
    ("zoom", "call"),
];

/// Words that are no part of a question, and what a person who types them may want.
const MEANT: &[(&str, &str)] = &[
    (
        "asus eero fritzbox mikrotik openwrt speedport unifi",
        "expected the queue of the router, such as cake, fq-codel or fifo",
    ),
    ("l4s nqb low-latency", "expected the queue and the senders, such as `docsis-lld prague`"),
    (
        "bufferbloat delay jitter lag latency loss slow",
        "every answer shows it; expected the line and what is sent, such as `cable upload game`",
    ),
    (
        "satellite geostationary viasat hughesnet",
        "low-orbit is a line; expected of others the rates and the round trip: `50/5 rtt 600`",
    ),
    ("file folder run", "`underload report FILE` shows a result"),
    ("torrent seeding", "expected `upload=20 download=20`: transfers beside each other"),
    ("powerline hotspot repeater mesh", "expected its rate, as `wifi 60`"),
];

/// Words between the others.
const FILLERS: &[&str] = &[
    "a", "an", "and", "at", "beside", "during", "is", "line", "mbit", "mbit/s", "mbps", "my", "of",
    "on", "or", "over", "router", "the", "to", "versus", "vs", "while", "with",
];

/// Words that a number follows: `wifi 60`.
const NUMBERED: &[&str] = &["policer", "backup", "follow", "wifi", "rtt"];
/// The queue that follows the word `modem`.
const MODEM: &str = "up-queue";

/// A larger number beside `upload` and `download` is a rate in Mbit/s.
const MOST_COUNTED: u32 = 5;

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
        let words = words.iter().map(|words| with_points(words)).collect::<Vec<_>>();
        let words = words.iter().flat_map(|words| words.split([' ', '+', ',']));
        let is_filler = |word: &str| FILLERS.contains(&word.to_lowercase().as_str());
        let words = words.filter(|word| !word.is_empty() && !is_filler(word));
        let words = with_films(words);
        let (mut said, mut rates, mut at) = (Said::new(), None, 0);
        while let Some(typed) = words.get(at) {
            let lower = typed.to_lowercase();
            let word = known(&lower);
            let is_named = self.line.is_some() || rates.is_some() || names_a_line(&words);
            if let Some(rate) = with_slash(&words[at..], is_named) {
                said_number(&mut said, &mut rates, &rate)?;
                at += 3;
            } else if let [_, "/", up, ..] = words[at..] {
                said_number(&mut said, &mut rates, &format!("{word}/{up}"))?;
                at += 2;
            } else if is_number(word) && words.get(at + 1) == Some(&"ms") {
                said_number(&mut said, &mut rates, &format!("{word}ms"))?;
                at += 1;
            } else if !is_number(word) {
                self.of_word(typed, word, &mut said, &mut rates)?;
            } else {
                match counted(&words, at, is_named)? {
                    Some((name, true)) => {
                        add(&mut said, name, word);
                        at += 1;
                    }
                    Some((name, false)) => match said.last_mut() {
                        Some((last, count)) if *last == name && count.is_empty() => {
                            word.clone_into(count);
                        }
                        _ => add(&mut said, name, word),
                    },
                    None => said_number(&mut said, &mut rates, word)?,
                }
            }
            at += 1;
        }
        self.set_rates(rates.iter().flat_map(PerDirection::iter))?;
        Ok(said)
    }

    /// Takes one word as it was typed and as it is known.
    fn of_word(
        &mut self,
        typed: &str,
        word: &str,
        said: &mut Said,
        rates: &mut Option<PerDirection<String>>,
    ) -> Result<(), QuestionFault> {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        if let Some(count) = home::films_4k(name, value) {
            add(said, Use::Video4k.name(), &count);
        } else if let Some(name) = sent().find(|it| *it == name) {
            add(said, name, value);
        } else if home::lines().any(|line| line == word) {
            // `5g` is a line, and no rate.
            if let Some(first) = &self.line {
                let problem = format!(
                    "a second line beside {first}; ask for each: `underload try {first} --out {first}` \
                     and `underload try {word} --out {word}`, then `underload compare --before {first} \
                     --after {word}`"
                );
                return Err(fault(typed, problem));
            }
            self.of_line(word);
        } else if word.starts_with(|c: char| c.is_ascii_digit()) {
            check_rate(typed)?;
            return said_number(said, rates, word);
        } else if let Some(numbered) = NUMBERED.iter().find(|it| **it == name) {
            if said.iter().any(|(name, _)| name == numbered) {
                return Err(fault(numbered, "a second one; expected one".to_owned()));
            }
            said.push((numbered, value.to_owned()));
        } else if word == "modem" {
            said.push((MODEM, String::new()));
        } else if is_queue(word) {
            match said.last_mut() {
                Some((MODEM, queue)) if queue.is_empty() => word.clone_into(queue),
                _ => said.push(("router", word.to_owned())),
            }
        } else if simulated_controls().iter().any(|it| it == word) {
            match said.last_mut() {
                Some(("backup", control)) if control.is_empty() => word.clone_into(control),
                _ => said.push(("congestion-control", word.to_owned())),
            }
        } else {
            return Err(unknown(typed));
        }
        Ok(())
    }

    /// Sets the rates of the line.
    fn set_rates<'a>(
        &mut self,
        rates: impl Iterator<Item = (Direction, &'a String)>,
    ) -> Result<(), QuestionFault> {
        for (direction, rate) in rates {
            match self.line.clone() {
                Some(_) if self.set_rate(direction, rate) => {}
                Some(_) if rate_of(rate).is_none_or(Rate::is_zero) => {
                    let key = format!("--{direction}");
                    return Err(fault(&key, format!("`{rate}`: expected a rate such as 20mbit")));
                }
                Some(name) => {
                    let problem = "its rate varies; expected no rates beside its name";
                    return Err(fault(&name, problem.to_owned()));
                }
                None => self.links[direction].clone_from(rate),
            }
        }
        Ok(())
    }

    /// Sets a rate of a named line, which stays what it is, with a buffer of the same time. Returns
    /// whether it is such a line, and its rate does not vary.
    pub(super) fn set_rate(&mut self, direction: Direction, rate: &str) -> bool {
        let scaled = scaled(&self.links[direction], &self.installed[direction], rate);
        let (Some(_), Some((link, queue))) = (&self.line, scaled) else { return false };
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

/// Returns the word that a question has for one of people, or for several: `films` is `video`.
fn known(word: &str) -> &str {
    let alias = |word: &str| ALIASES.iter().find(|(other, _)| *other == word).map(|it| it.1);
    let one = word.strip_suffix('s').unwrap_or(word);
    let sent = || sent().find(|name| *name == one);
    alias(word).or_else(|| alias(one)).or_else(sent).unwrap_or(word)
}

/// Returns the words for what is sent.
fn sent() -> impl Iterator<Item = &'static str> {
    ["upload", "download"].into_iter().chain(Use::ALL.map(Use::name))
}

fn is_number(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_digit())
}

/// Returns the words with one for `netflix 4k` and `4k film`.
fn with_films<'a>(words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let (mut words, mut all) = (words.peekable(), Vec::new());
    while let Some(word) = words.next() {
        let mut is_next =
            |one: &str| words.next_if(|next| known(&next.to_lowercase()) == one).is_some();
        let is_film = match known(&word.to_lowercase()) {
            "video" => is_next("4k"),
            "4k" => {
                is_next("video");
                true
            }
            _ => false,
        };
        all.push(if is_film { Use::Video4k.name() } else { word });
    }
    all
}

/// Returns `100/20` for `100 down 20 up` and for the other orders of these words, also with `download`
/// and `upload` if no word names the line and a number is too large for a count.
fn with_slash(words: &[&str], is_named: bool) -> Option<String> {
    let [first, second, third, fourth, ..] = words else { return None };
    let is_rate = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
    let (numbers, names) = match (is_rate(first), is_rate(second)) {
        (true, false) => ([first, third], [second, fourth]),
        (false, true) => ([second, fourth], [first, third]),
        _ => return None,
    };
    let [one, other] = numbers;
    let is_count = |number: &str| number.parse::<u32>().is_ok_and(|it| it <= MOST_COUNTED);
    let may_load = !(is_named || is_count(one) && is_count(other));
    let direction = |name: &&str| {
        let name = name.to_lowercase();
        let name = name.strip_suffix("load").filter(|_| may_load).unwrap_or(&name);
        [Direction::Up, Direction::Down].into_iter().find(|it| it.name() == name)
    };
    match (direction(names[0])?, direction(names[1])?) {
        (Direction::Down, Direction::Up) if is_rate(other) => Some(format!("{one}/{other}")),
        (Direction::Up, Direction::Down) if is_rate(other) => Some(format!("{other}/{one}")),
        _ => None,
    }
}

/// Whether a word is a line or its rates, and cannot be a count.
fn names_a_line(words: &[&str]) -> bool {
    words.iter().enumerate().any(|(at, word)| {
        let lower = word.to_lowercase();
        let takes_it = |before: &str| NUMBERED.contains(&known(before)) || is_queue(before);
        let is_taken = at.checked_sub(1).is_some_and(|at| takes_it(&words[at].to_lowercase()));
        let is_rate = lower.starts_with(|c: char| c.is_ascii_digit())
            && !is_number(&lower)
            && !lower.ends_with("ms");
        home::lines().any(|line| line == known(&lower)) || is_rate && !is_taken
    })
}

/// Returns what the whole number at `at` counts: the word for what is sent before or after it, and
/// whether it is the one after; `None` if it is a rate. Where the line has a rate otherwise, such a
/// number is a count; else it is one only before a plural: `4 downloads`, but `40 download`.
fn counted(
    words: &[&str],
    at: usize,
    is_named: bool,
) -> Result<Option<(&'static str, bool)>, QuestionFault> {
    let word = |at: Option<usize>| at.and_then(|at| words.get(at)).copied().unwrap_or_default();
    let name = |word: &str| sent().find(|it| *it == known(&word.to_lowercase()));
    let (number, before, next) = (words[at], word(at.checked_sub(1)), word(Some(at + 1)));
    let is_several = next.ends_with('s') && next != "ms" && !next.starts_with("docsis");
    match (name(before), name(next)) {
        _ if NUMBERED.contains(&known(&before.to_lowercase())) => Ok(None),
        (_, Some(name)) if is_several => Ok(Some((name, true))),
        (None, None) if is_several => Err(unknown(next)),
        (None, Some(name)) if is_queue(before) => {
            Err(fault(number, format!("expected {before}@{number} or {name}={number}")))
        }
        (Some(before), Some(name)) => {
            Err(fault(number, format!("expected {before}={number} or {name}={number}")))
        }
        (None, Some(name)) => Ok(is_named.then_some((name, true))),
        (Some(name), None) if is_named => Ok(Some((name, false))),
        (Some(name), None) => {
            let line = format!("a line of {number} Mbit/s before it: {number} {name}");
            Err(fault(number, format!("expected {name}={number}, or {line}")))
        }
        (None, None) => Ok(None),
    }
}

/// Adds transfers, calls and the like; without a number it is one.
fn add(said: &mut Said, name: &'static str, count: &str) {
    let number = |count: &str| if count.is_empty() { Ok(1) } else { count.parse::<u32>() };
    let Some((_, earlier)) = said.iter_mut().find(|it| it.0 == name) else {
        said.push((name, count.to_owned()));
        return;
    };
    *earlier = match (number(earlier), number(count)) {
        (Ok(earlier), Ok(count)) => earlier.saturating_add(count).to_string(),
        _ => count.to_owned(),
    };
}

/// Adds a number to the policer, backup, Wi-Fi, round trip or router before it, as in `cake at 90/18`,
/// or to the line.
fn said_number(
    said: &mut Said,
    rates: &mut Option<PerDirection<String>>,
    word: &str,
) -> Result<(), QuestionFault> {
    check_rate(word)?;
    match (said.last_mut(), &rates) {
        (Some((name, value)), _) if NUMBERED.contains(name) && value.is_empty() => {
            word.clone_into(value);
        }
        (Some((MODEM, queue)), _) if queue.is_empty() && word.ends_with("ms") => {
            word.clone_into(queue);
        }
        _ if word.contains("..") => said.push(("follow", word.to_owned())),
        _ if word.ends_with("ms") => said.push(("rtt", word.to_owned())),
        (_, None) => *rates = Some(home::down_and_up(word)),
        (Some(("router", queue)), _) if !queue.contains('@') => *queue = format!("{queue}@{word}"),
        (_, Some(PerDirection { up, down })) => {
            let problem = format!(
                "a second rate beside {down}/{up}; expected one, as in 100/20; two lines are two runs \
                 with --out, and `underload compare --before RUN --after RUN`"
            );
            return Err(fault(word, problem));
        }
    }
    Ok(())
}

/// Returns words with decimal points for commas, and a slash for the colon of `50:10`.
fn with_points(words: &str) -> String {
    let chars: Vec<char> = words.chars().collect();
    let is_digit = |index: Option<usize>| {
        index.and_then(|index| chars.get(index)).is_some_and(char::is_ascii_digit)
    };
    let between = |index: usize| is_digit(index.checked_sub(1)) && is_digit(index.checked_add(1));
    let starts_with_digit = words.starts_with(|c: char| c.is_ascii_digit());
    let point = |(index, c): (usize, &char)| match c {
        ',' if between(index) => '.',
        ':' if between(index) && starts_with_digit => '/',
        c => *c,
    };
    chars.iter().enumerate().map(point).collect()
}

/// Whether a word is a queue, with or without rates, that a router can have.
fn is_queue(word: &str) -> bool {
    let queue = our_form(word.split('@').next().unwrap_or_default());
    Spec::parse(&queue).is_ok_and(|spec| QueueEntry::find(&spec.name).is_some())
}

/// Says what a question accepts in place of a word.
fn unknown(word: &str) -> QuestionFault {
    let all = || {
        let others = ["cake", "modem"].into_iter().chain(NUMBERED.iter().copied());
        let others = others.chain(ALIASES.iter().map(|it| it.0));
        sent().chain(others).chain(home::lines())
    };
    let lines = home::lines().collect::<Vec<_>>().join(", ");
    let expected = "a queue of the router, such as cake@90/18, or what is sent: upload, download, call, \
                    game, page, video, video:4k or backup 5; wifi 60, policer 50/10, modem docsis-pie, \
                    rtt 20 or bbr";
    let shown: String = word.chars().take(WORD_CHARS).collect();
    let lower = word.to_lowercase();
    let hint = MEANT.iter().find(|(words, _)| words.split(' ').any(|known| known == lower));
    if let Some((_, hint)) = hint {
        return fault(&shown, (*hint).to_owned());
    }
    if lower.contains(['.', '/', '\\']) {
        let files =
            "recorded rates are `--up trace:FILE`, and `underload report FILE` shows a result";
        return fault(&shown, format!("a file is no word of a question; {files}"));
    }
    let meant = did_you_mean(word, all());
    let problem =
        format!("expected DOWN/UP in Mbit/s, such as 100/20, a line ({lines}), {expected}{meant}");
    fault(&shown, problem)
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
        assert_eq!(question.line.as_deref(), Some("cable"));
        assert!(question.title().starts_with("cable, 20mbit up, 200mbit down, "));
        let (_, said) = asked("100/20 policed to 50/10 with cake").expect("known words");
        assert_eq!(said, [("policer", "50/10".to_owned()), ("router", "cake".to_owned())]);
        let (question, said) = asked("40 download 3 Calls 2 films backup=5").expect("known words");
        assert_eq!(question.links.down, "40mbit");
        let said: Vec<String> =
            said.iter().map(|(name, value)| format!("{name} {value}")).collect();
        assert_eq!(said, ["download ", "call 3", "video 2", "backup 5"]);
        let (question, said) =
            asked("50,5/10 game game 2 calls bbr vs cubic wifi 60 ping 20 modem docsis-pie")
                .expect("known words");
        assert_eq!(question.links.down, "50.5mbit");
        let said: Vec<String> =
            said.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let expected = "game 2, call 2, congestion-control bbr, congestion-control cubic, wifi 60, \
                        rtt 20, up-queue docsis-pie";
        assert_eq!(said.join(", "), expected);
        for (words, films) in
            [("netflix 4K video:4k game", "2"), ("5g 4k film", ""), ("4k video=2:4k", "3")]
        {
            let (_, said) = asked(words).expect("known words");
            assert_eq!(said[0], ("video:4k", films.to_owned()), "{words}");
        }
        for words in ["3..60 call", "follow 3..60", "follow=3..60"] {
            assert_eq!(asked(words).expect(words).1[0], ("follow", "3..60".to_owned()));
        }
        let (_, said) = asked("backup ledbat bbr").expect("known words");
        assert_eq!(said[0], ("backup", "ledbat".to_owned()));
        let (question, said) = asked("50:10 30ms").expect("known words");
        assert_eq!((&*question.links.down, &*said[0].1), ("50mbit", "30ms"));
        for words in ["16/1 cake@14/0.8", "16/1 with CAKE at 14/0.8"] {
            let (question, said) = asked(words).expect("known words");
            assert_eq!(question.links, PerDirection::new("1mbit", "16mbit").map(str::to_owned));
            assert_eq!(said, [("router", "cake@14/0.8".to_owned())]);
        }
    }

    #[test]
    fn a_number_beside_what_is_sent_counts_it_if_the_line_is_named() {
        for (words, expected) in [
            ("cable call 5", "call 5"),
            ("cable 5 call", "call 5"),
            ("call 5 25/5", "call 5"),
            ("25/5 upload 2 and 3 calls", "upload 2, call 3"),
            ("40 upload 2", "upload 2"),
            ("40 download", "download "),
            ("cable wifi 60 call", "wifi 60, call "),
            ("100/20 CAKE 90/18 call 2", "router cake@90/18, call 2"),
            ("100 down 20 up game", "game "),
            ("40/10 modem 250ms upload", "up-queue 250ms, upload "),
            ("upload 20 download 100 game", "game "),
            ("100 Mbit/s Download, 20 Mbit/s Upload", ""),
            ("16.000 / 1.000 game", "game "),
            ("DOWN 100 UP 20 game rtt 20 ms", "game , rtt 20ms"),
        ] {
            let (_, said) = asked(words).expect(words);
            let said: Vec<String> =
                said.iter().map(|(name, value)| format!("{name} {value}")).collect();
            assert_eq!(said.join(", "), expected, "{words}");
        }
        let (question, _) = asked("20 up 100 down").expect("rates");
        assert_eq!(question.links, PerDirection::new("20mbit", "100mbit").map(str::to_owned));
    }

    #[test]
    fn unknown_words_are_named_with_what_is_accepted() {
        for (words, said) in [
            ("100/20 calbe", "calbe: expected DOWN/UP in Mbit/s"),
            ("calbe", "did you mean `cable`?"),
            ("lte 50/10", "lte: its rate varies"),
            (
                "cable vs lte",
                "lte: a second line beside cable; ask for each: `underload try cable --out cable` and \
                 `underload try lte --out lte`, then `underload compare --before cable --after lte`",
            ),
            ("100/20 50/10", "50/10: a second rate beside 100mbit/20mbit"),
            ("far-room", "far-room: expected"),
            ("policer 50/10 policed", "policer: a second one"),
            ("100/20 4 peoples", "peoples: expected"),
            ("100/20 FritzBox", "FritzBox: expected the queue of the router"),
            ("cable l4s", "l4s: expected the queue and the senders"),
            ("lte.up", "lte.up: a file is no word"),
            ("cable video 2 call", "2: expected video=2 or call=2"),
            ("cable cake 5 call", "5: expected cake@5 or call=5"),
            ("upload 2 download 3", "2: expected upload=2 or download=2"),
            ("100/20 12.5MB/s", "12.5MB/s: MB are bytes"),
            ("call 5", "5: expected call=5, or a line of 5 Mbit/s before it: 5 call"),
            ("16000/1000", "expected Mbit/s, such as 16/1, or a unit: 16000kbit/1000kbit"),
            ("cable 20 up", "up: expected"),
        ] {
            let error = asked(words).expect_err(words).to_string();
            assert!(error.contains(said), "{words}: {error}");
        }
    }

    #[test]
    fn a_wrong_rate_of_a_named_line_is_a_fault_of_the_rate() {
        for (words, said) in [("cable 0/0", "--up: `0mbit`: "), ("5g 4Q", "--up: `4q`: ")] {
            let error = asked(words).expect_err(words).to_string();
            assert!(error.starts_with(said), "{words}: {error}");
        }
    }

    #[test]
    fn the_name_of_every_line_is_a_word() {
        for line in home::lines() {
            let (question, _) = asked(line).expect(line);
            assert_eq!(question.line.as_deref(), Some(line));
        }
    }

    #[test]
    fn every_alias_is_a_word_of_a_question() {
        for (alias, _) in ALIASES {
            asked(alias).expect(alias);
        }
    }
}
