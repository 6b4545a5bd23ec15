//! The scenarios that come with the program.

use underload_aqm::config::closest;

include!(concat!(env!("OUT_DIR"), "/builtin_scenarios.rs"));

/// A scenario, or a file that one needs, compiled into the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuiltIn {
    /// Folder and name without extension, for example `comcast/upstream`.
    pub name: &'static str,
    pub text: &'static str,
}

/// Returns all built-in scenarios, sorted by name.
pub fn scenarios() -> impl Iterator<Item = BuiltIn> + Clone {
    SCENARIOS.iter().copied()
}

pub fn find(name: &str) -> Option<BuiltIn> {
    scenarios().find(|scenario| scenario.name == name)
}

/// Suggests a name for the unknown `name`. `known` names have their group before a slash.
pub fn suggestion<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let group_of = |name: &'a str| name.split_once('/').map_or(name, |(group, _)| group);
    let start = name.trim_end_matches('/');
    let members: Vec<&str> = known.clone().filter(|known| group_of(known) == start).collect();
    if !members.is_empty() {
        return format!("of {start} there are {}", members.join(", "));
    }
    let mut groups: Vec<&str> = known.clone().map(group_of).collect();
    groups.dedup();
    if let Some(meant) = closest(name, known.clone().chain(groups.iter().copied())) {
        return format!("did you mean `{meant}`?");
    }
    // A member's name without its group.
    let of_group: Vec<&str> =
        known.filter(|known| known.split_once('/').is_some_and(|(_, own)| own == name)).collect();
    if !of_group.is_empty() {
        return format!("did you mean {}?", of_group.join(" or "));
    }
    format!("there are those of {}; `underload scenarios` lists them", groups.join(", "))
}

/// Returns the content of a file that comes with the scenarios, for example
/// `bode/synthetic-cellular.trace`. The error lists the files.
pub fn load_file(name: &str) -> Result<Vec<u8>, String> {
    match FILES.iter().find(|file| file.name == name) {
        Some(file) => Ok(file.text.as_bytes().to_vec()),
        None => {
            let known: Vec<&str> = FILES.iter().map(|file| file.name).collect();
            Err(format!("no such file; built in are {}", known.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_scenario_name_suggests_the_nearest_one() {
        let known = ["bode/step", "bode/trace", "comcast/study", "comcast/upstream"];
        for (name, answer) in [
            ("comcast/upsteam", "did you mean `comcast/upstream`?"),
            ("comcast", "of comcast there are comcast/study, comcast/upstream"),
            ("bode/", "of bode there are bode/step, bode/trace"),
            ("bodee", "did you mean `bode`?"),
            ("upstream", "did you mean comcast/upstream?"),
            ("nothing-like", "there are those of bode, comcast; `underload scenarios` lists them"),
        ] {
            assert_eq!(suggestion(name, known.into_iter()), answer);
        }
    }
}
