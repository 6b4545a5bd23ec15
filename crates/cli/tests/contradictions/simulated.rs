//! Random small scenarios of two to five variants.

use std::fmt::Write as _;

use crate::made_up::Dice;

pub fn scenario(seed: u64, repeats: &[u32]) -> String {
    let dice = &mut Dice::new(seed);
    let repeats = dice.one_of(repeats);
    let up = dice.one_of(&["1mbit", "2mbit", "5mbit", "10mbit"]);
    let down = dice.one_of(&["5mbit", "10mbit", "20mbit"]);
    let rtt = dice.one_of(&["5ms", "20ms", "40ms", "120ms"]);
    let loss = dice.one_of(&["", "", "", ":loss=1%", ":loss=30%", ":loss=70%"]);
    let mut text = format!(
        "seed = {seed}\nrepeats = {repeats}\n[path]\nup = \"{up}{loss}\"\ndown = \"{down}\"\nrtt = \"{rtt}\"\n\
         [phases]\nidle = \"1s\"\nramp = \"1s\"\nload = \"{}\"\ndrain = \"200ms\"\n",
        dice.one_of(&["1s", "3s", "6s"])
    );
    if dice.percent(90) {
        let direction = dice.one_of(&["up", "up", "both"]);
        let control = dice.one_of(&["cubic", "reno", "bbr", "prague"]);
        let _ = write!(
            text,
            "[[flow]]\nname = \"bulk\"\nkind = \"tcp\"\ndirection = \"{direction}\"\ncongestion_control = \"{control}\"\n"
        );
    }
    if dice.percent(40) {
        let kind = dice.one_of(&["voip", "web", "game"]);
        let _ = write!(text, "[[flow]]\nkind = \"{kind}\"\n");
    }
    if dice.percent(70) || !text.contains("[[flow]]") {
        text += "[[flow]]\nkind = \"probe\"\ninterval = \"10ms\"\n";
    }
    let baseline = dice.one_of(&["", "", "", "[headline]\nbaseline = \"v1\"\n"]);
    text += baseline;
    let queues = ["fifo", "fifo:limit=40KB", "codel", "fq-codel", "pie", "cake", "bode", "dualpi2"];
    let (count, start) = (dice.one_of(&[2, 3, 4, 5]), dice.one_of(&[0, 1, 2, 3]));
    for number in 0..count {
        let _ = write!(
            text,
            "[[variant]]\nname = \"v{number}\"\npath.up_queue = \"{}\"\n",
            queues[start + number]
        );
    }
    text
}
