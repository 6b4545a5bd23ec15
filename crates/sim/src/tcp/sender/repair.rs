//! Repair of losses and timeouts, and undo of spurious reductions.
//!
//! As Linux `tcp_fastretrans_alert` and `tcp_process_loss`: fast recovery, timeouts with F-RTO (RFC
//! 5682, the variant with selective acknowledgements), undo by time stamps and duplicates.

use super::{
    Acknowledgement, Cause, CongestionControl, Delivery, Loss, Port, Premature, Prior, Reduction,
    Sender, Stamp, State, Time, Turn,
};

impl Sender {
    /// Changes the state before losses are detected.
    pub(super) fn change_state(
        &mut self,
        now: Time,
        ack: &Acknowledgement,
        delivery: &Delivery,
    ) -> Turn {
        if delivery.acknowledged > 0 {
            self.timeouts_in_row = 0;
        }
        if let Some(sequence) = ack.duplicate() {
            self.undo.on_duplicate(sequence);
        }
        self.judge_probe(now, ack, delivery);
        let ended = ack.cumulative >= self.recover;
        match self.state {
            // The segment that announces the reduction (CWR) must be acknowledged, too.
            State::Reducing if ack.cumulative > self.recover => self.end_reduction(),
            State::Open | State::Reducing => {}
            State::Recovery if ended => self.end_recovery(ack),
            State::Recovery => return self.continue_recovery(ack, delivery),
            State::Timeout => return self.continue_after_timeout(ack, delivery),
        }
        if self.state == State::Open && self.board.retransmitting == 0 {
            self.undo.forget_retransmissions();
        }
        Turn::All
    }

    /// A tail loss probe that was a retransmission repaired a loss if the acknowledgement advances
    /// beyond it and reports no duplicate (RFC 8985 section 7.4).
    fn judge_probe(&mut self, now: Time, ack: &Acknowledgement, delivery: &Delivery) {
        let Some(probe) = self.probe.filter(|probe| ack.cumulative >= probe.high) else { return };
        let duplicate = ack.duplicate.is_some();
        let repaired = probe.again && !duplicate && ack.cumulative > probe.high;
        if repaired || !probe.again || duplicate || delivery.delivered == 0 {
            self.probe = None;
        }
        if repaired && self.state == State::Open {
            self.reduce(now, Cause::Loss);
            self.window.size = self.window.size.min(self.window.threshold);
            self.control.on_reduction_end(&mut self.window);
        }
    }

    fn end_reduction(&mut self) {
        if !self.control.owns_window() {
            self.window.size = self.window.threshold;
        }
        self.control.on_reduction_end(&mut self.window);
        self.state = State::Open;
    }

    fn end_recovery(&mut self, ack: &Acknowledgement) {
        if self.undo.was_delayed(ack.echoed) || self.undo.all_duplicates() {
            self.restore();
            self.control.on_reduction_end(&mut self.window);
            self.state = State::Open;
            return;
        }
        self.rack.on_recovered();
        self.end_reduction();
    }

    /// Continues fast recovery. An echo from before the first retransmission shows that segments
    /// were late, not lost; then nothing is retransmitted until retransmissions are answered.
    fn continue_recovery(&mut self, ack: &Acknowledgement, delivery: &Delivery) -> Turn {
        if delivery.acknowledged > 0 && self.undo.was_delayed(ack.echoed) {
            if self.board.retransmitting > 0 {
                return Turn::New;
            }
            self.undo.forget_retransmissions();
            self.board.forget_losses();
            self.restore();
            self.state = State::Open;
        } else if self.undo.all_duplicates() {
            self.restore();
            self.state = State::Open;
        }
        Turn::All
    }

    fn continue_after_timeout(&mut self, ack: &Acknowledgement, delivery: &Delivery) -> Turn {
        let advanced = delivery.acknowledged > 0;
        if advanced && (self.undo.was_delayed(ack.echoed) || self.undo.all_duplicates()) {
            self.undo_timeout();
            return Turn::All;
        }
        let premature = if advanced { self.premature.take() } else { None };
        if let Some(timeout) = premature.filter(|timeout| ack.echoed.is_before(timeout.at)) {
            self.resume_recovery(timeout);
            return Turn::All;
        }
        if self.forward {
            let original = delivery.first_original.is_some_and(|first| first < self.recover);
            if original {
                self.undo_timeout();
                return Turn::All;
            }
            if self.board.next > self.recover {
                // New data arrived, but the neighbours of the retransmission did not.
                self.forward = delivery.sacked == 0 && ack.duplicate.is_none();
            } else if advanced && ack.cumulative < self.recover {
                self.recover = self.board.next;
                if self.has_new() && self.fits_peer() {
                    return Turn::New;
                }
                self.forward = false;
            }
        }
        if ack.cumulative >= self.recover {
            if self.undo.was_delayed(ack.echoed) || self.undo.all_duplicates() {
                self.restore();
            } else {
                self.rack.on_recovered();
            }
            self.state = State::Open;
        }
        Turn::All
    }

    /// Undoes a spurious timeout: no segment counts as lost, and the window is restored.
    fn undo_timeout(&mut self) {
        self.board.forget_losses();
        self.restore();
        self.timeouts_in_row = 0;
        self.forward = false;
        self.state = State::Open;
    }

    /// Undoes a timeout but not the losses before it: a retransmission arrived that was sent before
    /// the timeout (RFC 3522 with the time stamp of the timeout).
    fn resume_recovery(&mut self, timeout: Premature) {
        self.board.forget_losses();
        if self.control.is_restored_by_transport() {
            timeout.prior.restore(&mut self.window);
        }
        self.stats.undone += 1;
        self.timeouts_in_row = 0;
        self.forward = false;
        self.state = State::Recovery;
    }

    fn restore(&mut self) {
        if let Some(prior) = self.undo.take() {
            if self.control.is_restored_by_transport() {
                prior.restore(&mut self.window);
            }
            self.control.on_undo();
            self.stats.undone += 1;
        }
    }

    /// Starts fast recovery. A retransmission lost after a timeout is a new congestion event.
    pub(super) fn recover_losses(&mut self, now: Time, lost_again: bool) {
        match self.state {
            State::Recovery => return,
            State::Timeout if !lost_again => return,
            _ => {}
        }
        let prior = Prior::new(&self.window);
        let reduces = !self.answers_a_mark();
        if reduces {
            self.reduce(now, Cause::Loss);
        }
        self.begin(State::Recovery);
        let under_way = self.board.retransmitting;
        if under_way == 0 {
            self.undo.forget_retransmissions();
        }
        self.undo.begin(self.board.first, reduces.then_some(prior), under_way);
    }

    /// Returns whether the window is already being reduced for a mark by as much as for a loss.
    fn answers_a_mark(&self) -> bool {
        self.state == State::Reducing && !self.control.answers_loss_while_reducing()
    }

    pub(super) fn on_mark(&mut self, now: Time) {
        if self.state == State::Open {
            self.reduce(now, Cause::Mark);
            self.announce_reduction = true;
            self.begin(State::Reducing);
            self.undo.give_up();
        }
    }

    fn reduce(&mut self, now: Time, cause: Cause) {
        let in_flight = self.board.in_flight();
        let loss = Loss { now, cause, in_flight, min_rtt: self.rtt.min };
        self.reduction = Reduction::start(&self.window, in_flight);
        self.probe = None;
        self.window.drop_credit();
        self.control.on_loss(&loss, &mut self.window);
        self.stats.reductions += 1;
    }

    fn begin(&mut self, state: State) {
        self.state = state;
        self.recover = self.board.next;
    }

    /// Linux `tcp_enter_loss`. Reduces the window unless it was reduced for these segments.
    pub(super) fn on_timeout(&mut self, port: &mut Port<'_>) {
        self.stats.timeouts += 1;
        let undisturbed = matches!(self.state, State::Open | State::Reducing);
        let reduces = (undisturbed && !self.answers_a_mark())
            || self.board.first >= self.recover
            || (self.state == State::Timeout && self.timeouts_in_row == 0);
        let prior = Prior::new(&self.window);
        if self.timeouts_in_row == 0 {
            let prior = Prior::unraised(&self.window);
            self.premature = Some(Premature { at: Stamp::of(port.now), prior });
        }
        if reduces {
            self.reduce(port.now, Cause::Timeout);
        }
        let view = self.rack.view(port.now, self.state, &self.board, &self.rtt);
        self.board.mark_overdue(&view);
        if reduces {
            let under_way = self.board.retransmitting;
            self.undo.begin(self.board.first, Some(prior), under_way);
        }
        self.forward = undisturbed || self.timeouts_in_row > 0;
        self.probe = None;
        self.begin(State::Timeout);
        self.window.size = self.board.in_flight() + 1;
        self.window.drop_credit();
        self.timeouts_in_row += 1;
        self.timer.back_off();
        self.arm_timeout(port.now);
        self.pacer.release(port.now);
        self.transmit(port, Turn::All);
    }
}
