//! Builds samples from the packets sent and the answers received.

use underload_record::schema::{Marking, PhaseWindow, Sample};
use underload_record::stats::distribution;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentRecord {
    pub class: u16,
    /// Sequence number within the class.
    pub sequence: u32,
    /// When the packet was due.
    pub scheduled_ns: u64,
    pub sent_ns: u64,
}

/// An answer that arrived. Times of the far end are converted to the run's clock as if both ends
/// had one wall clock; a [`super::ClockOffset`] corrects them later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyRecord {
    pub class: u16,
    pub sequence: u32,
    pub received_ns: u64,
    /// When the packet reached the far end; `None` if the far end did not report it.
    pub far_received_ns: Option<i64>,
    /// When the far end sent the answer; `None` if it did not report that.
    pub far_sent_ns: Option<i64>,
    /// Marking of the packet on arrival at the far end.
    pub marking_far: Option<Marking>,
    /// Marking of the answer on arrival.
    pub marking_near: Option<Marking>,
}

impl ReplyRecord {
    /// Returns the time in the far end's host; `None` if that is unknown or cannot be true.
    fn residence_ns(&self, sent_ns: u64) -> Option<u64> {
        let residence = self.far_sent_ns?.saturating_sub(self.far_received_ns?);
        let total_ns = self.received_ns.saturating_sub(sent_ns);
        u64::try_from(residence).ok().filter(|residence_ns| *residence_ns <= total_ns)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeCounts {
    pub sent: u64,
    pub answered: u64,
    /// Packets not answered in time: `sent - answered`.
    pub lost: u64,
    /// Answers after the time limit; their packets count as lost.
    pub answered_late: u64,
    /// Further answers to an answered packet.
    pub duplicates: u64,
    /// First answers that arrived after the answer to a later packet (RFC 4737 section 3).
    pub reordered: u64,
    /// Answers to packets that were never sent, or with a time before their packet.
    pub unmatched: u64,
    /// 99th percentile of the time between a packet's arrival at the far end and its answer, which
    /// is in no delay; `None` if the far end did not report it.
    pub residence_p99_ns: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// One per packet sent, by scheduled time.
    pub samples: Vec<Sample>,
    pub counts: Vec<ProbeCounts>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Labels<'a> {
    pub trial: u32,
    /// Flow number of class 0; class `c` has `first_flow + c`.
    pub first_flow: u16,
    /// The marking sent, by class.
    pub markings: &'a [Marking],
    pub phases: &'a [PhaseWindow],
    pub closed_loop: bool,
}

/// Joins packets and answers by class and sequence number.
///
/// - The round trip is `(received - sent) - (far_sent - far_received)`: the time that the far end's
///   host took between its two time stamps is not the network's (RFC 8762 section 4). If the far
///   end's stamps are missing or span more than the whole round trip, it is `received - sent`.
/// - A packet without an answer within `timeout_ns` of its sending is lost.
/// - One-way delays need `far_clock_offset_ns`, the lead of the far wall clock over ours: 0 on one
///   machine, else an estimate with its error.
/// - A sample's phase is that of its scheduled time; after all phases, the last one.
///
/// `sent` must be in order of sequence within each class, as a sender produces it.
pub(crate) fn match_labelled(
    sent: &[SentRecord],
    replies: &[ReplyRecord],
    timeout_ns: u64,
    far_clock_offset_ns: i64,
    labels: Labels<'_>,
) -> Collected {
    let classes = labels.markings.len();
    let mut packets: Vec<Vec<Joined>> = vec![Vec::new(); classes];
    for record in sent {
        if let Some(list) = packets.get_mut(usize::from(record.class)) {
            list.push(Joined { sent: *record, reply: None });
        }
    }
    let mut collected = Collected::default();
    for (class, list) in packets.iter_mut().enumerate() {
        let answers = replies.iter().filter(|reply| usize::from(reply.class) == class);
        let mut counts = join(list, answers, timeout_ns);
        counts.sent = list.len() as u64;
        counts.lost = counts.sent - counts.answered;
        collected.counts.push(counts);
        let sample = |joined: &Joined| joined.sample(far_clock_offset_ns, labels);
        collected.samples.extend(list.iter().map(sample));
    }
    collected.samples.sort_by_key(|sample| (sample.scheduled_ns, sample.flow));
    collected
}

/// Joins packets and answers by class and sequence number, outside a trial: all samples have trial
/// 0, the class as flow, and the phase from `phases`. Both ends have one clock. A packet without an
/// answer within `timeout_ns` is lost. `markings` has one entry per class.
pub fn match_replies(
    sent: &[SentRecord],
    replies: &[ReplyRecord],
    timeout_ns: u64,
    markings: &[Marking],
    phases: &[PhaseWindow],
) -> Collected {
    let labels = Labels { trial: 0, first_flow: 0, markings, phases, closed_loop: false };
    match_labelled(sent, replies, timeout_ns, 0, labels)
}

#[derive(Clone, Copy)]
struct Joined {
    sent: SentRecord,
    reply: Option<ReplyRecord>,
}

fn join<'a>(
    packets: &mut [Joined],
    replies: impl Iterator<Item = &'a ReplyRecord>,
    timeout_ns: u64,
) -> ProbeCounts {
    let mut counts = ProbeCounts::default();
    let mut highest_sequence = None;
    let mut residences = Vec::new();
    for reply in replies {
        let found = packets.binary_search_by_key(&reply.sequence, |packet| packet.sent.sequence);
        let packet = found.ok().and_then(|index| packets.get_mut(index));
        let Some(packet) = packet.filter(|packet| packet.sent.sent_ns <= reply.received_ns) else {
            counts.unmatched += 1;
            continue;
        };
        if packet.reply.is_some() {
            counts.duplicates += 1;
        } else if reply.received_ns - packet.sent.sent_ns > timeout_ns {
            counts.answered_late += 1;
        } else {
            packet.reply = Some(*reply);
            residences.extend(reply.residence_ns(packet.sent.sent_ns));
            counts.answered += 1;
            counts.reordered += u64::from(highest_sequence > Some(reply.sequence));
            highest_sequence = highest_sequence.max(Some(reply.sequence));
        }
    }
    counts.residence_p99_ns = distribution(&mut residences).map(|it| it.p99_ns);
    counts
}

impl Joined {
    fn sample(&self, far_clock_offset_ns: i64, labels: Labels<'_>) -> Sample {
        let class = usize::from(self.sent.class);
        let on_our_clock = |far_ns: Option<i64>| far_ns.map(|far_ns| far_ns - far_clock_offset_ns);
        let far_received_ns = on_our_clock(self.reply.and_then(|reply| reply.far_received_ns));
        let far_sent_ns = on_our_clock(self.reply.and_then(|reply| reply.far_sent_ns));
        Sample {
            trial: labels.trial,
            flow: labels.first_flow + self.sent.class,
            sequence: u64::from(self.sent.sequence),
            phase: phase_at(labels.phases, self.sent.scheduled_ns),
            closed_loop: labels.closed_loop,
            scheduled_ns: self.sent.scheduled_ns,
            sent_ns: self.sent.sent_ns,
            rtt_ns: self.reply.map(|reply| round_trip_ns(self.sent.sent_ns, &reply)),
            one_way_up_ns: far_received_ns.map(|far| far - self.sent.sent_ns as i64),
            one_way_down_ns: self
                .reply
                .and_then(|reply| far_sent_ns.map(|far| reply.received_ns as i64 - far)),
            marking_sent: labels.markings.get(class).copied().unwrap_or_default(),
            marking_far: self.reply.and_then(|reply| reply.marking_far),
            marking_near: self.reply.and_then(|reply| reply.marking_near),
        }
    }
}

/// Returns the round trip without the time in the far end's host.
fn round_trip_ns(sent_ns: u64, reply: &ReplyRecord) -> u64 {
    reply.received_ns.saturating_sub(sent_ns) - reply.residence_ns(sent_ns).unwrap_or(0)
}

fn phase_at(phases: &[PhaseWindow], time_ns: u64) -> underload_record::schema::Phase {
    let window = phases.iter().find(|window| time_ns < window.end_ns).or(phases.last());
    window.map(|window| window.phase).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use underload_record::schema::Phase;

    fn sent(sequence: u32, sent_ns: u64) -> SentRecord {
        SentRecord { class: 0, sequence, scheduled_ns: sent_ns - 1, sent_ns }
    }

    fn reply(sequence: u32, received_ns: u64) -> ReplyRecord {
        ReplyRecord { sequence, received_ns, ..ReplyRecord::default() }
    }

    fn matched(sent: &[SentRecord], replies: &[ReplyRecord]) -> Collected {
        match_replies(sent, replies, 500, &[Marking::default()], &[])
    }

    #[test]
    fn loss_duplicates_reordering_and_late_answers_are_distinguished() {
        let packets: Vec<_> = (0..6).map(|i| sent(i, 100 + u64::from(i) * 10)).collect();
        let replies = [
            reply(0, 150),
            reply(2, 160),
            reply(1, 170), // behind 2
            reply(2, 180), // again
            reply(4, 650), // 510 after it was sent
            reply(9, 660), // never sent
            reply(5, 120), // before it was sent
        ];
        let collected = matched(&packets, &replies);
        let expected = ProbeCounts {
            sent: 6,
            answered: 3,
            lost: 3,
            answered_late: 1,
            duplicates: 1,
            reordered: 1,
            unmatched: 2,
            residence_p99_ns: None,
        };
        assert_eq!(collected.counts, [expected]);
        let round_trips: Vec<_> = collected.samples.iter().map(|sample| sample.rtt_ns).collect();
        assert_eq!(round_trips, [Some(50), Some(60), Some(40), None, None, None]);
    }

    #[test]
    fn time_in_the_reflector_does_not_count() {
        let mut answer = reply(0, 400);
        (answer.far_received_ns, answer.far_sent_ns) = (Some(180), Some(250));
        let collected = matched(&[sent(0, 100)], &[answer]);
        assert_eq!(collected.counts[0].residence_p99_ns, Some(70));
        let sample = collected.samples[0];
        assert_eq!(sample.rtt_ns, Some(230));
        assert_eq!((sample.one_way_up_ns, sample.one_way_down_ns), (Some(80), Some(150)));
        // Time stamps of the far end that cannot be true are ignored.
        answer.far_sent_ns = Some(9_000);
        let collected = matched(&[sent(0, 100)], &[answer]);
        assert_eq!(collected.samples[0].rtt_ns, Some(300));
        assert_eq!(collected.counts[0].residence_p99_ns, None);
        answer.far_sent_ns = Some(170);
        assert_eq!(matched(&[sent(0, 100)], &[answer]).samples[0].rtt_ns, Some(300));
    }

    #[test]
    fn the_far_clocks_offset_moves_one_way_delays_only() {
        let mut answer = reply(0, 400);
        (answer.far_received_ns, answer.far_sent_ns) = (Some(1_180), Some(1_250));
        let labels = Labels {
            trial: 3,
            first_flow: 5,
            markings: &[Marking::default()],
            phases: &[],
            closed_loop: true,
        };
        let sample = match_labelled(&[sent(0, 100)], &[answer], 500, 1_000, labels).samples[0];
        assert_eq!((sample.trial, sample.flow, sample.closed_loop), (3, 5, true));
        assert_eq!(sample.rtt_ns, Some(230));
        assert_eq!((sample.one_way_up_ns, sample.one_way_down_ns), (Some(80), Some(150)));
    }

    #[test]
    fn the_scheduled_time_decides_the_phase() {
        let window = |phase, start_ns, end_ns| PhaseWindow { phase, start_ns, end_ns };
        let phases = [window(Phase::Idle, 0, 100), window(Phase::Load, 100, 200)];
        let late = SentRecord { class: 0, sequence: 0, scheduled_ns: 99, sent_ns: 150 };
        let after = SentRecord { class: 0, sequence: 1, scheduled_ns: 250, sent_ns: 250 };
        let collected = match_replies(&[late, after], &[], 500, &[Marking::default()], &phases);
        let seen: Vec<_> = collected.samples.iter().map(|sample| sample.phase).collect();
        assert_eq!(seen, [Phase::Idle, Phase::Load]);
    }

    proptest! {
        #[test]
        fn every_packet_is_one_sample_and_every_answer_is_counted(
            replies in prop::collection::vec((0u16..3, 0u32..30, 0u64..2_000), 0..80),
        ) {
            let packets: Vec<_> = (0..20).flat_map(|i| (0..2).map(move |class| SentRecord {
                class,
                sequence: i * 2,
                scheduled_ns: u64::from(i) * 10,
                sent_ns: u64::from(i) * 10 + 1,
            })).collect();
            let answers: Vec<_> = replies.iter().map(|&(class, sequence, received_ns)| ReplyRecord {
                class, sequence, received_ns, ..ReplyRecord::default()
            }).collect();
            let collected = match_replies(&packets, &answers, 300, &[Marking::default(); 2], &[]);
            prop_assert_eq!(collected.samples.len(), packets.len());
            for (class, counts) in collected.counts.iter().enumerate() {
                let of_class = |reply: &&ReplyRecord| usize::from(reply.class) == class;
                let offered = answers.iter().filter(of_class).count() as u64;
                let accounted = counts.answered + counts.answered_late + counts.duplicates
                    + counts.unmatched;
                prop_assert_eq!(accounted, offered);
                prop_assert_eq!(counts.sent, counts.answered + counts.lost);
                let answered = collected.samples.iter()
                    .filter(|s| usize::from(s.flow) == class && s.rtt_ns.is_some()).count() as u64;
                prop_assert_eq!(answered, counts.answered);
            }
        }
    }
}
