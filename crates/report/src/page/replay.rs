//! The page of a replay: the same packets in several queues.

use maud::{Markup, html};

use super::figures::{Headings, figures};
use super::parts::{NOTHING, head, table, unit_head, words_head};
use super::{header, without_controls};
use crate::plot::diagram::{Curve, Diagram, Panel, Scale};
use crate::plot::{Plot, Plotted};
use crate::replayed::{Replayed, ReplayedQueue, caveats, verdict};
use crate::words::{significant, thousands};

/// Most queues in plots; the table has all.
const MOST_DRAWN: usize = 8;

/// Renders the page of a replay: sentences, distributions, time series, and a table.
pub fn replay_page(replayed: &Replayed) -> Plotted<String> {
    let drawn = named(&replayed.queues[..replayed.queues.len().min(MOST_DRAWN)]);
    let distribution: Vec<Plot> = distribution(&drawn).transpose()?.into_iter().collect();
    let times: Vec<Plot> = over_time(replayed, &drawn)?;
    let title = format!("What queues would have done to {}", replayed.input);
    let kind = [format!("replay, open loop, link {}", replayed.link), replayed.filter.clone()];
    let kind: Vec<String> = kind.into_iter().filter(|part| !part.is_empty()).collect();
    let content = html! {
        header {
            "\n"
            p.kind { (kind.join(" · ")) } "\n"
            h1 { (title) } "\n"
            div.warning role="note" {
                "\n"
                @for line in caveats(replayed) { p { (line) } "\n" }
                "\n"
            }
            "\n"
            @for (number, line) in verdict(replayed).iter().enumerate() {
                p.verdict.minor[number > 0] { (line) } "\n"
            }
        }
        "\n"
        h2 { "The queues" } "\n"
        (queues(&replayed.queues))
        @if !distribution.is_empty() {
            h2 { "How long packets waited" } "\n"
            p.note {
                "Of the packets that were sent. A queue that drops more has fewer left to wait: "
                "read it beside the drops."
            }
            "\n"
            (figures(&distribution, Headings::Shown))
        }
        @if !times.is_empty() {
            h2 { "Over time" } "\n"
            p.note {
                "By when a packet came, in steps of " (significant(replayed.step_s * 1e3)) " ms."
                @if replayed.queues.len() > MOST_DRAWN {
                    " The first " (MOST_DRAWN) " of " (replayed.queues.len()) " queues are drawn."
                }
            }
            "\n"
            (figures(&times, Headings::Shown))
        }
        p.note {
            "Seed " (replayed.seed) "; " (significant(replayed.span_s)) " s from the first packet "
            "to the end of the last transmission."
        }
        "\n"
    };
    Ok(without_controls(header::interactive(&title, &content).into_string()))
}

/// Names queues for plots; queues with equal SPECs get a number.
fn named(queues: &[ReplayedQueue]) -> Vec<(String, &ReplayedQueue)> {
    let is_twice = |name: &str| queues.iter().filter(|it| it.queue == name).count() > 1;
    let name = |number: usize, queue: &ReplayedQueue| {
        if is_twice(&queue.queue) {
            format!("{}. {}", number + 1, queue.queue)
        } else {
            queue.queue.clone()
        }
    };
    queues.iter().enumerate().map(|(at, queue)| (name(at, queue), queue)).collect()
}

fn queues(queues: &[ReplayedQueue]) -> Markup {
    let heads = html! {
        (words_head("queue")) (head("packets")) (head("sent")) (head("marked")) (head("dropped"))
        (unit_head("wait p50", "ms")) (unit_head("p90", "ms")) (unit_head("p99", "ms"))
        (unit_head("most", "ms")) (unit_head("sent", "Mbit/s")) (words_head("dropped because"))
    };
    let rows: Vec<Markup> = queues.iter().map(row).collect();
    table(&heads, &rows)
}

fn row(queue: &ReplayedQueue) -> Markup {
    let wait =
        |at: usize| queue.sojourn_ms.map_or(NOTHING.to_owned(), |sojourn| significant(sojourn[at]));
    let rate = queue.throughput_bit_per_s.map(|rate| significant(rate / 1e6));
    let reasons: Vec<String> = queue
        .drops
        .iter()
        .filter(|(_, packets)| *packets > 0)
        .map(|(reason, packets)| format!("{reason} {}", thousands(*packets)))
        .collect();
    html! {
        tr {
            th.text { (queue.queue) }
            td { (thousands(queue.packets)) }
            td { (thousands(queue.sent)) }
            td { (thousands(queue.marked)) }
            td { (thousands(queue.dropped_packets())) }
            td { (wait(0)) }
            td { (wait(1)) }
            td { b { (wait(2)) } }
            td { (wait(3)) }
            td { (rate.as_deref().unwrap_or(NOTHING)) }
            td.text { (reasons.join(", ")) }
        }
    }
}

fn distribution(drawn: &[(String, &ReplayedQueue)]) -> Option<Plotted> {
    let curves: Vec<Curve> = drawn
        .iter()
        .filter(|(_, queue)| !queue.cdf.is_empty())
        .map(|(name, queue)| Curve::line(name, stairs(&queue.cdf)))
        .collect();
    let most = curves.iter().flat_map(|it| &it.points).map(|(ms, _)| *ms).reduce(f64::max)?;
    let panel = Panel {
        x: Scale::linear("time in the queue, ms", 0.0..above(most)),
        y: Scale::linear("share of the packets sent", 0.0..1.0),
        curves,
    };
    let title = "Cumulative distribution of the time in the queue".to_owned();
    Some(Diagram { name: "sojourn-cdf".to_owned(), title, panels: vec![panel] }.plot())
}

/// Returns the corners of a distribution function, which starts at 0.
fn stairs(cdf: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let before = std::iter::once(0.0).chain(cdf.iter().map(|(_, share)| *share));
    let steps = cdf.iter().zip(before);
    steps.flat_map(|((ms, share), before)| [(*ms, before), (*ms, *share)]).collect()
}

fn over_time(run: &Replayed, drawn: &[(String, &ReplayedQueue)]) -> Plotted<Vec<Plot>> {
    type Of = fn(&ReplayedQueue) -> &[(f64, f64)];
    let kinds: [(&str, &str, &str, Of); 3] = [
        ("sojourn-time", "Longest wait", "longest wait, ms", |queue| &queue.sojourn),
        ("drops-time", "Packets dropped", "packets dropped per step", |queue| &queue.dropped),
        ("marks-time", "Packets marked", "packets marked per step", |queue| &queue.marks),
    ];
    let end = run.span_s.max(run.step_s).max(1e-9);
    let x = || Scale::linear("time since the first packet, s", 0.0..end);
    let diagram = |name: &str, title: &str, y: &str, curves: Vec<Curve>| {
        let values = curves.iter().flat_map(|curve| &curve.points).map(|(_, value)| *value);
        let most = values.fold(0.0, f64::max);
        // An empty plot is left out.
        (most > 0.0).then(|| {
            let panel = Panel { x: x(), y: Scale::linear(y, 0.0..above(most)), curves };
            let (name, title) = (name.to_owned(), title.to_owned());
            Diagram { name, title, panels: vec![panel] }.plot()
        })
    };
    let offered = Curve::line("", run.offered.clone());
    let offered = diagram("offered", "What came", "offered, Mbit/s", vec![offered]);
    let rest = kinds.into_iter().map(|(name, title, y, of)| {
        let curve =
            |(name, queue): &(String, &ReplayedQueue)| Curve::line(name, of(queue).to_vec());
        diagram(name, title, y, drawn.iter().map(curve).collect())
    });
    std::iter::once(offered).chain(rest).flatten().collect()
}

fn above(most: f64) -> f64 {
    (most * 1.06).max(1e-6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::PAGE_MARK;
    use crate::replayed::tests::{queue, replayed};

    #[test]
    fn a_page_shows_the_queues_side_by_side_and_that_the_loop_is_open() {
        let queues = vec![queue("fifo", 250.0, 4, 0), queue("codel", 12.0, 31, 7)];
        let page = replay_page(&replayed(queues)).unwrap();
        assert!(page.contains("Open loop: the senders do not react."), "{page}");
        // Distribution, what came, waits, drops, marks.
        assert_eq!(page.matches("<svg").count(), 5);
        assert!(page.contains("overlimit 31") && page.contains(PAGE_MARK));
    }

    #[test]
    fn what_never_happened_is_not_drawn_and_strangers_are_escaped() {
        let mut of = replayed(vec![queue("fifo", 5.0, 0, 0), queue("fifo", 5.0, 0, 0)]);
        of.input = "<script>x\u{1b}".to_owned();
        let page = replay_page(&of).unwrap();
        assert!(!page.contains("<script>x") && !page.contains('\u{1b}'));
        assert_eq!(page.matches("<svg").count(), 3, "neither drops nor marks");
        assert!(page.contains("1. fifo") && page.contains("2. fifo"));
        // Nothing at all, and a single packet, are pages, too.
        of.queues.clear();
        of.offered.clear();
        (of.span_s, of.step_s) = (0.0, 0.0);
        assert_eq!(replay_page(&of).unwrap().matches("<svg").count(), 0);
        let many = (0..20).map(|at| queue(&format!("q{at}"), 5.0, 0, 0)).collect();
        assert!(replay_page(&replayed(many)).unwrap().contains("The first 8 of 20 queues"));
    }
}
