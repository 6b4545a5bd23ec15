//! Results that the page shows from a link.

use serde_json::json;
use underload_service::CompatLedger;

use super::chromium::{self, Screen};
use super::{STORED, browser, open_afresh, server, text_of};

/// A row and a curve of a link, with a loss of the highest percentile down.
const SHARED: &str = "#result=148,0,0,10,11,12,,13,12,,0,0,,,,,1,1,1,,,,,,,\
    _348,30,0,40,90,100,,110,,38.5,0,0,,,,,1,1,1,,30,31,32,33,34,900_\
    _0,10,11_12,40,,41______1,1795492183";

#[test]
fn shared_links_show_their_numbers_or_the_reason_and_the_history_is_bounded() {
    let test = "shared_links_show_their_numbers_or_the_reason_and_the_history_is_bounded";
    let Some(mut browser) = browser(test) else { return };
    let (server, _) = server(CompatLedger::unlimited());
    let page = format!("https://{}/", server.address());
    open_afresh(&mut browser, &format!("{page}{SHARED}"));
    let verdict = text_of(&mut browser, "verdict");
    assert_eq!(verdict, "Grade D.");
    assert_eq!(text_of(&mut browser, "sender"), "");
    // A load that adds 2 ms beside and 23 inside; the last number says that nothing of it was lost.
    for (state, sender) in [(0, ""), (2, "Empty.")] {
        let low = format!("348,0,0,10,11,12,,13,12,38.5,0,{state},");
        let link = SHARED.replace("348,30,0,40,90,100,,110,,38.5,0,0,", &low);
        open_afresh(&mut browser, &format!("{page}{link}"));
        assert_eq!(text_of(&mut browser, "verdict"), "Grade A.");
        assert_eq!(text_of(&mut browser, "sender"), sender, "{state}");
    }
    let long = format!("#result={}", "1".repeat(20_000));
    let html = "<img src=x onerror=alert(1)>";
    for (fragment, why) in [
        (long, "longer than 16384 characters"),
        ("#result=".to_owned(), "cut short, or of another version"),
        (SHARED.replace("_1,1795492183", "_2,1795492183"), "another version"),
        (SHARED.replace("______", "_____"), "a part of it is missing"),
        (SHARED.replace(",1795492183", ",7"), "its time is impossible"),
        (SHARED.replace("#result=148", "#result=1e308"), "not a number"),
        (SHARED.replace("#result=148", "#result=99999999999"), "not a number"),
        (SHARED.replace("#result=148", &format!("#result={html}")), "not a number"),
        (SHARED.replace("#result=148,", "#result="), "too few or too many values"),
        (SHARED.replace("_348,30", "_348,349"), "a count of probes is wrong"),
        (SHARED.replace("_348,30", "_348,3.5"), "a count of probes is wrong"),
        (SHARED.replace(",38.5,0,", ",38.5,9,"), "an unknown state"),
        (SHARED.replace(",90,100,", ",101,100,"), "a percentile exceeds a higher one"),
        (SHARED.replace("_12,40", "_100000000,40"), "longer than a measurement"),
        ("#result=___0,10_______1,1795492183".to_owned(), "it has no round trips"),
    ] {
        open_afresh(&mut browser, &format!("{page}{fragment}"));
        let shown = text_of(&mut browser, "origin");
        assert!(shown.starts_with("This link has no result that can be shown"), "{shown}");
        assert!(shown.contains(why), "{fragment:.60}: {shown}");
        assert_eq!(text_of(&mut browser, "verdict"), "");
    }
    // Other fragments and another program's text in the storage are ignored.
    open_afresh(&mut browser, &format!("{page}#{html}"));
    assert_eq!(text_of(&mut browser, "origin"), "");
    let stored = browser.value(&format!(
        "import('/history.js').then((it) => {{ \
             localStorage.setItem('underload results', '{html}'); \
             const links = [...Array(30).keys()].map((second) => \
                 '{SHARED}'.replace('1795492183', 1795492100 + second)); \
             for (const link of links) it.remember(link); \
             it.forget(links[29]); \
             return it.results().map((result) => result.started_s); }})"
    ));
    let newest_first: Vec<u64> = (1_795_492_110..1_795_492_129).rev().collect();
    assert_eq!(stored, json!(newest_first));
    assert_eq!(browser.complaints, Vec::<String>::new());
}

#[test]
fn the_page_with_results_has_no_faults_on_desktops_and_phones() {
    let test = "the_page_with_results_has_no_faults_on_desktops_and_phones";
    let Some(mut browser) = browser(test) else { return };
    let axe = chromium::axe(test);
    let (server, _) = server(CompatLedger::unlimited());
    let page = format!("https://{}/", server.address());
    let mut faults = Vec::new();
    for (screen, is_dark) in [(Screen::Desktop, false), (Screen::Phone, true)] {
        browser.screen(screen, is_dark);
        open_afresh(&mut browser, &page);
        browser.value(&format!("import('/history.js').then((it) => it.remember('{SHARED}'))"));
        open_afresh(&mut browser, &format!("{page}{SHARED}"));
        assert_eq!(text_of(&mut browser, "verdict"), "Grade D.");
        assert_ne!(browser.value(STORED), 0, "both tables are shown");
        let unnamed = "[...document.querySelectorAll('table')].filter((it) => !it.caption).length";
        assert_eq!(browser.value(unnamed), 0, "a table without a caption");
        let found = browser.faults(axe.as_deref());
        faults.extend(found.iter().map(|fault| format!("{screen:?} dark: {is_dark}: {fault}")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
