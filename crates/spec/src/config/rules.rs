//! Parses the rules by which packets are changed, such as `dscp:45>0+ecn:bleach`.
//!
//! ```text
//! RULES  = item { "+" item }                            dscp:45>0+ecn:bleach
//! item   = PROFILE | change [ "@" share ".." share ]    ecn:ce>ect1@0%..30%
//! change = "dscp:" ( "*" | N { "/" N } ) ">" ( N | "class" )
//!        | "ecn:bleach" | "ecn:" NAME ">" NAME          NAME: not-ect, ect0, ect1, ce
//!        | "tos>0"
//! ```

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::config::number::{join, millionths_of_q32, probability, shorten};
use crate::packet::{Dscp, Ecn};
use crate::remark::{Change, NewDscp, Rule, Rules, Share};

/// A named change that networks are known to make.
pub struct RemarkProfile {
    /// The word for the rules in a SPEC.
    pub name: &'static str,
    /// The rules, as a user would write them.
    pub rules: &'static str,
    /// The networks that apply the profile, and in which direction.
    pub doc: &'static str,
}

/// The changes that have a name.
pub const REMARK_PROFILES: [RemarkProfile; 4] = [
    RemarkProfile {
        name: "comcast-edge",
        rules: "dscp:40/46/56>45",
        doc: "up: an edge that takes the markings of homes for non-queue-building; 45 passes",
    },
    RemarkProfile {
        name: "peer-45",
        rules: "dscp:45>0",
        doc: "down: a neighbour's edge that bleaches DSCP 45, which it uses for itself",
    },
    RemarkProfile {
        name: "home-bleach",
        rules: "tos>0",
        doc: "either way: a home router that clears the whole byte, ECN with it",
    },
    RemarkProfile {
        name: "wifi",
        rules: "dscp:*>class",
        doc: "either way: Wi-Fi that keeps only the user priority: 45 is 5 (AC_VI), written as 40",
    },
];

/// The accepted form, for help and errors.
pub(super) const EXPECTED: &str = "rules joined by +, such as dscp:45>0, ecn:bleach, \
                                   ecn:ce>ect1@0%..30% or tos>0, or a profile";

/// Parses rules that are joined by `+`.
pub(super) fn read(text: &str) -> Result<Rules, String> {
    let mut rules: Vec<Rule> = Vec::new();
    for (number, item) in (1..).zip(text.split('+')) {
        let at = |problem: String| format!("rule {number}, `{}`: {problem}", shorten(item));
        let profile = REMARK_PROFILES.iter().find(|profile| profile.name == item);
        for part in profile.map_or(item, |profile| profile.rules).split('+') {
            let rule = rule(part).map_err(at)?;
            if rules.contains(&rule) {
                return Err(at("a duplicate; expected different rules".to_string()));
            }
            rules.push(rule);
        }
        // Checked before the next rule is parsed, so that a hostile text is not stored.
        if rules.len() > Rules::MOST {
            return Err(at(format!("expected at most {} rules", Rules::MOST)));
        }
    }
    Ok(Rules::new(rules).unwrap_or_default())
}

fn rule(text: &str) -> Result<Rule, String> {
    let (change, share) = match text.split_once('@') {
        None => (text, Share::ALL),
        Some((change, range)) => (change, share(range)?),
    };
    let change = if change == "tos>0" {
        Change::TosZero
    } else if let Some(codepoints) = change.strip_prefix("dscp:") {
        dscp(codepoints)?
    } else if let Some(codepoints) = change.strip_prefix("ecn:") {
        ecn(codepoints)?
    } else {
        let names = join(REMARK_PROFILES.iter().map(|profile| profile.name));
        return Err(format!("expected dscp:A>B, ecn:bleach, ecn:A>B, tos>0, or one of {names}"));
    };
    Ok(Rule { change, share })
}

fn share(text: &str) -> Result<Share, String> {
    let range = text.split_once("..").and_then(|(from, to)| {
        let (from_q32, to_q32) = (probability(from)?, probability(to)?);
        (from_q32 < to_q32).then_some(Share { from_q32, to_q32 })
    });
    range.ok_or_else(|| "expected a share FROM..TO behind @, such as @0%..30%".to_string())
}

fn dscp(text: &str) -> Result<Change, String> {
    let expected = || "expected dscp:A>B with 0 to 63, such as 45>0, 40/46>45, *>0 or *>class";
    let codepoint = |text: &str| text.parse().ok().and_then(Dscp::new);
    let change = text.split_once('>').and_then(|(from, to)| {
        let from = match from {
            "*" => u64::MAX,
            list => list
                .split('/')
                .try_fold(0, |set, one| codepoint(one).map(|dscp| set | 1 << dscp.value()))?,
        };
        let to = match to {
            "class" => NewDscp::Class,
            to => NewDscp::Value(codepoint(to)?),
        };
        Some((from, to))
    });
    let (from, to) = change.ok_or_else(expected)?;
    if !(0..64).any(|dscp| from >> dscp & 1 == 1 && changes(dscp, to)) {
        return Err("expected a change: what it names stays as it is".to_string());
    }
    Ok(Change::Dscp { from, to })
}

fn changes(dscp: u8, to: NewDscp) -> bool {
    match to {
        NewDscp::Value(to) => to.value() != dscp,
        NewDscp::Class => !dscp.is_multiple_of(8),
    }
}

fn ecn(text: &str) -> Result<Change, String> {
    if text == "bleach" {
        return Ok(Change::EcnBleach);
    }
    let names = text.split_once('>');
    let change = names.and_then(|(from, to)| Some((Ecn::from_name(from)?, Ecn::from_name(to)?)));
    match change {
        Some((from, to)) if from != to => Ok(Change::Ecn { from, to }),
        _ => Err("expected ecn:bleach, or ecn:A>B with two of not-ect, ect0, ect1, ce".to_string()),
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for rule in self.as_slice() {
            write!(f, "{separator}{rule}")?;
            separator = "+";
        }
        Ok(())
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.change.fmt(f)?;
        if self.share == Share::ALL {
            return Ok(());
        }
        f.write_str("@")?;
        millionths_of_q32(f, self.share.from_q32)?;
        f.write_str("..")?;
        millionths_of_q32(f, self.share.to_q32)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::EcnBleach => f.write_str("ecn:bleach"),
            Self::Ecn { from, to } => write!(f, "ecn:{}>{}", from.name(), to.name()),
            Self::TosZero => f.write_str("tos>0"),
            Self::Dscp { from, to } => {
                f.write_str("dscp:")?;
                if from == u64::MAX {
                    f.write_str("*")?;
                } else {
                    let mut separator = "";
                    for codepoint in (0..64).filter(|codepoint| from >> codepoint & 1 == 1) {
                        write!(f, "{separator}{codepoint}")?;
                        separator = "/";
                    }
                }
                match to {
                    NewDscp::Value(to) => write!(f, ">{}", to.value()),
                    NewDscp::Class => f.write_str(">class"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Meta;

    #[test]
    fn rules_print_as_they_are_read() {
        for text in [
            "dscp:45>0",
            "dscp:40/46/56>45",
            "dscp:*>class",
            "ecn:bleach@0..0.3",
            "ecn:ce>ect1+ecn:ect1>ect0+tos>0@0.25..1",
            "ecn:not-ect>ect0",
        ] {
            assert_eq!(read(text).expect(text).to_string(), text);
        }
        assert_eq!(read("tos>0@0%..100%"), read("tos>0"), "all packets are no share");
        assert_eq!(read("dscp:46/40/46>45").expect("a set").to_string(), "dscp:40/46>45");
    }

    #[test]
    fn profiles_expand_to_rules_that_parse() {
        for profile in &REMARK_PROFILES {
            let rules = read(profile.name).expect(profile.name);
            assert_eq!(rules.to_string(), profile.rules);
        }
        let both = read("peer-45+ecn:bleach").expect("a profile and a rule");
        assert_eq!(both.to_string(), "dscp:45>0+ecn:bleach");
    }

    #[test]
    fn errors_name_the_rule_and_what_would_be_accepted() {
        let nine = ["dscp:0>63", "dscp:1>63", "dscp:2>63", "dscp:3>63"].join("+")
            + "+dscp:4>63+dscp:5>63+dscp:6>63+dscp:7>63+dscp:8>63";
        for (text, expected) in [
            ("", "rule 1, ``: expected dscp:A>B, ecn:bleach, ecn:A>B, tos>0, or one of comcast"),
            ("tos>0+", "rule 2, ``"),
            ("tos>1", "expected dscp:A>B"),
            ("dscp:45>64", "rule 1, `dscp:45>64`: expected dscp:A>B with 0 to 63"),
            ("dscp:-1>0", "with 0 to 63"),
            ("dscp:>0", "with 0 to 63"),
            ("dscp:45//46>0", "with 0 to 63"),
            ("dscp:45", "with 0 to 63"),
            ("dscp:45>45", "expected a change"),
            ("dscp:0/8/40>class", "expected a change"),
            ("ecn:ect0>ect0", "expected ecn:bleach, or ecn:A>B"),
            ("ecn:ect2>ce", "expected ecn:bleach, or ecn:A>B"),
            ("ecn:", "expected ecn:bleach, or ecn:A>B"),
            ("tos>0@30%..30%", "expected a share FROM..TO"),
            ("tos>0@50%..20%", "expected a share FROM..TO"),
            ("tos>0@20%", "expected a share FROM..TO"),
            ("tos>0@0%..101%", "expected a share FROM..TO"),
            ("peer-45@0%..10%", "rule 1, `peer-45@0%..10%`: expected dscp:A>B"),
            ("dscp:45>0+peer-45", "rule 2, `peer-45`: a duplicate; expected different rules"),
            (nine.as_str(), "rule 9, `dscp:8>63`: expected at most 8 rules"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
        let hostile = "\u{1f4a5}>".repeat(50_000);
        assert!(read(&hostile).expect_err("no rule").len() < 1_000, "an error of bounded length");
    }

    #[test]
    fn each_rule_changes_only_its_field() {
        for (text, changed) in [
            ("dscp:45>0", &[(45 << 2, 0), (45 << 2 | 3, 3)][..]),
            ("dscp:40/46/56>45", &[(40 << 2 | 1, 45 << 2 | 1), (46 << 2, 45 << 2), (0xe0, 0xb4)]),
            ("dscp:*>class", &[(45 << 2 | 2, 40 << 2 | 2), (1 << 2, 0)]),
            ("ecn:bleach", &[(45 << 2 | 1, 45 << 2), (2, 0), (3, 0)]),
            ("ecn:ce>ect1", &[(3, 1), (0xff, 0xfd)]),
            ("ecn:not-ect>ect0", &[(0, 2), (45 << 2, 45 << 2 | 2)]),
            ("tos>0", &[(1, 0), (45 << 2, 0), (0xff, 0)]),
        ] {
            let rules = read(text).expect(text);
            let [rule] = rules.as_slice() else { panic!("one rule: {text}") };
            let outcome = |tos: u8| {
                let (dscp, ecn) = (Dscp::from_tos(tos), Ecn::from_bits(tos));
                let mut meta = Meta { dscp, ecn, ..Meta::new(100, 7) };
                let told = rule.apply(&mut meta, 0);
                assert_eq!((meta.len, meta.flow), (100, 7));
                (meta.dscp.value() << 2 | meta.ecn.bits(), told)
            };
            for (from, to) in changed {
                assert_eq!(outcome(*from), (*to, true), "{text}: {from}");
            }
            for tos in 0..=255 {
                let (after, told) = outcome(tos);
                assert_eq!(after != tos, told, "{text}: {tos}");
                assert!(!told || !outcome(after).1 || rule.change == Change::EcnBleach, "{text}");
            }
        }
    }

    #[test]
    fn shares_divide_the_packets() {
        let rules = read("dscp:*>1@0%..25%+dscp:*>2@25%..100%").expect("two rules");
        assert!(rules.draw() && !read("tos>0").expect("a rule").draw());
        for draw in [0, 1 << 20, (1 << 30) - 1, 1 << 30, u32::MAX] {
            let mut meta = Meta::new(100, 0);
            let told: Vec<bool> =
                rules.as_slice().iter().map(|rule| rule.apply(&mut meta, draw)).collect();
            let first = draw < 1 << 30;
            assert_eq!(told, [first, !first], "{draw}");
            assert_eq!(meta.dscp.value(), if first { 1 } else { 2 });
        }
    }
}
