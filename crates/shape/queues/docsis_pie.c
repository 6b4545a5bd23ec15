/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * DOCSIS-PIE, the AQM of cable modems (RFC 8034 appendix A; DOCSIS MULPIv3.1 annex M), as
 * crates/aqm/src/queue/docsis_pie has it, to the last bit. BPF has neither numbers of 128 bits nor
 * signed division: a step of the probability is a sign, whole numbers and a fraction.
 */
#define QUEUE ul_docsis_pie
#include "law.h"

struct law_settings {
	u64 target_ns;
	/* Maximum sustained rate and peak rate, bit/s. Neither is 0. */
	u64 rate;
	u64 peak;
	/* Size of the token bucket; at most 2^30. */
	u64 burst_bytes;
	/* A third of the buffer wakes the law. */
	u64 buffer_bytes;
};

enum activity { INACTIVE, QUIESCENT, ACTIVE };

struct law_state {
	/* Probability of a packet of mean size, with 56 fractional bits; at most 13.6. */
	u64 probability_q56;
	u64 old_delay_ns;
	u64 burst_left_ns;
	u64 activity;
	/* Consecutive quiet updates while quiescent. */
	u64 quiet_updates;
	/* Sum of the probabilities since the last drop. */
	u64 accumulated_q56;
	/* Tokens in units of 1e-9 bit: one nanosecond adds exactly `rate`. */
	u64 tokens;
	u64 refilled_at;
	u64 next_update;
};

#define ONE_Q56 (1ULL << 56)
#define RATIO_Q56(numerator, denominator)                                                          \
	((ONE_Q56 / (denominator)) * (numerator) +                                                 \
	 (ONE_Q56 % (denominator)) * (numerator) / (denominator))
#define UPDATE_INTERVAL_NS 16000000ULL
#define MAX_BURST_NS 142000000ULL
#define RESET_UPDATES 62
#define MEAN_PACKET_BYTES 1024ULL
#define LATENCY_LOW_NS 5000000ULL
#define LATENCY_HIGH_NS 200000000ULL
#define LOW_Q56 RATIO_Q56(85, 100)
#define HIGH_Q56 RATIO_Q56(85, 10)
#define LIMIT_Q56 (LOW_Q56 * 16)
#define TWO_PERCENT_Q56 RATIO_Q56(2, 100)
#define TEN_PERCENT_Q56 RATIO_Q56(10, 100)
#define TWENTY_PERCENT_Q56 RATIO_Q56(20, 100)
/* Longer delays count as this long, which keeps the arithmetic in range. */
#define DELAY_CAP_NS (1ULL << 40)
#define U64_MAX (~0ULL)
#define TOKENS_PER_BYTE 8000000000ULL
/* An idle queue is inactive after fewer updates. Others skip the rest: 65 s without a packet. */
#define UPDATES_MAX 4096

LAW u64 least(u64 a, u64 b)
{
	return a < b ? a : b;
}

/* Returns `bytes` in units of 1e-9 bit, or the largest number. */
LAW u64 tokens_of(u64 bytes)
{
	return bytes > U64_MAX / TOKENS_PER_BYTE ? U64_MAX : bytes * TOKENS_PER_BYTE;
}

LAW void refill(struct law_state *state, const struct law_settings *settings, u64 now)
{
	u64 elapsed = now - state->refilled_at;
	u64 room = settings->burst_bytes * TOKENS_PER_BYTE - state->tokens;

	/* `rate * elapsed` may not fit 64 bits. */
	state->tokens += elapsed > room / settings->rate ? room : elapsed * settings->rate;
	state->refilled_at = now;
}

/* Returns the time in which `bytes` leave: at the peak rate while tokens last, then sustained. */
LAW u64 estimated_delay(const struct law_state *state, const struct law_settings *settings,
			u64 bytes)
{
	u64 at_peak = least(bytes, state->tokens / TOKENS_PER_BYTE);
	u64 peak = settings->peak > settings->rate ? settings->peak : settings->rate;

	return tokens_of(at_peak) / peak +
	       tokens_of(bytes - at_peak) / settings->rate;
}

/* The magnitude of a step: whole numbers, and a fraction of 56 bits. */
struct step {
	u64 whole;
	u64 fraction_q56;
	int is_negative;
};

/* Returns 0.25 Hz * (delay - target) + 2.5 Hz * (delay - old delay). */
LAW struct step step_of(u64 delay, u64 old_delay, u64 target)
{
	const u64 steps_per_one = 1000000000000000ULL;
	s64 now = least(delay, DELAY_CAP_NS), old = least(old_delay, DELAY_CAP_NS);
	s64 goal = least(target, DELAY_CAP_NS);
	/* A millionth of a hertz times a nanosecond is 1e-15. */
	s64 sum = 250000 * (now - goal) + 2500000 * (now - old);
	u64 steps = sum < 0 ? -sum : sum;
	u64 rest = steps % steps_per_one;
	struct step step = { steps / steps_per_one, 0, sum < 0 };

	/* Divides `rest << 56`, 14 bits at a time: 1e15 has 50 bits. */
	for (int digit = 0; digit < 4; digit++) {
		rest <<= 14;
		step.fraction_q56 = step.fraction_q56 << 14 | rest / steps_per_one;
		rest %= steps_per_one;
	}
	return step;
}

/* Returns the power of two by which a step at a low probability is divided. */
LAW u32 low_probability_shift(u64 probability)
{
	return probability < RATIO_Q56(1, 1000000) ? 11 :
	       probability < RATIO_Q56(1, 100000)  ? 9 :
	       probability < RATIO_Q56(1, 10000)   ? 7 :
	       probability < RATIO_Q56(1, 1000)	   ? 5 :
	       probability < RATIO_Q56(1, 100)	   ? 3 :
						     1;
}

/*
 * Returns the step in Q56, scaled by the probability. What exceeds every probability is cut to
 * 2^62, which the bounds of the probability cannot tell from the whole.
 */
LAW u64 scaled_q56(struct step step, u64 probability)
{
	const u64 large = 1ULL << 62;

	if (probability < TEN_PERCENT_Q56) {
		u32 shift = low_probability_shift(probability);
		u64 low = step.whole & ((1ULL << shift) - 1);

		if (step.whole >> shift >= 64)
			return large;
		return ((step.whole >> shift) << 56) + (low << (56 - shift)) +
		       (step.fraction_q56 >> shift);
	}
	u32 shift = probability < ONE_Q56 ? 1 : probability < 10 * ONE_Q56 ? 3 : 5;

	if (step.whole << shift >= 64)
		return large;
	return least(large, (step.whole << (56 + shift)) + (step.fraction_q56 << shift));
}

/* Applies the control law of appendix A.2, for a state without burst allowance. */
LAW u64 next_probability(const struct law_state *state, struct step step, u64 delay)
{
	u64 old = state->probability_q56;
	u64 size = scaled_q56(step, old);

	if (old >= TEN_PERCENT_Q56 && !step.is_negative)
		size = least(size, TWO_PERCENT_Q56);
	/* Temporarily below zero: the bounds are the last of A.2's rules. */
	s64 probability = step.is_negative ? (s64)old - (s64)size : (s64)(old + size);

	if (delay < LATENCY_LOW_NS && state->old_delay_ns < LATENCY_LOW_NS) {
		if (probability > 0)
			probability -= (u64)probability / 50;
	} else if (delay > LATENCY_HIGH_NS) {
		probability += TWO_PERCENT_Q56;
	}
	return probability < 0 ? 0 : least(probability, LIMIT_Q56);
}

LAW void update_activity(struct law_state *state, int is_quiet)
{
	if (state->activity == QUIESCENT && is_quiet && state->quiet_updates >= RESET_UPDATES) {
		state->activity = INACTIVE;
		state->quiet_updates = 0;
	} else if (state->activity == QUIESCENT) {
		state->quiet_updates = is_quiet ? state->quiet_updates + 1 : 0;
	} else if (state->activity == ACTIVE && is_quiet) {
		state->activity = QUIESCENT;
		state->quiet_updates = 0;
	}
}

/* Makes the periodic update of appendix A.2. Returns whether it changed anything. */
ONCE int update(struct law_state *state, const struct law_settings *settings, u64 stored_bytes)
{
	if (!state || !settings)
		return 0;
	struct law_state before = *state;
	u64 half_target = settings->target_ns / 2;
	u64 delay = estimated_delay(state, settings, stored_bytes);

	if (state->burst_left_ns) {
		state->probability_q56 = 0;
	} else {
		struct step step = step_of(delay, state->old_delay_ns, settings->target_ns);

		state->probability_q56 = next_probability(state, step, delay);
	}
	state->burst_left_ns -= least(state->burst_left_ns, UPDATE_INTERVAL_NS);
	update_activity(state, delay < half_target && state->old_delay_ns < half_target &&
				       !state->probability_q56 && !state->burst_left_ns);
	state->old_delay_ns = delay;
	return state->probability_q56 != before.probability_q56 ||
	       state->old_delay_ns != before.old_delay_ns ||
	       state->burst_left_ns != before.burst_left_ns ||
	       state->activity != before.activity || state->quiet_updates != before.quiet_updates;
}

LAW void law_start(struct law_state *state, const struct law_settings *settings)
{
	state->tokens = settings->burst_bytes * TOKENS_PER_BYTE;
	state->next_update = UPDATE_INTERVAL_NS;
}

/* Makes the updates that fell due, at their nominal times; those that change nothing at once. */
ONCE int make_updates(struct law_state *state, const struct law_settings *settings, u64 now,
		      u64 stored_packets, u64 stored_bytes)
{
	if (!state || !settings)
		return 0;
	repeat (UPDATES_MAX) {
		u64 due = state->next_update;

		if (due > now)
			return 0;
		state->next_update += UPDATE_INTERVAL_NS;
		/* A packet may have left after the time of an update that is made late. */
		refill(state, settings, due > state->refilled_at ? due : state->refilled_at);
		int changed = update(state, settings, stored_bytes);
		int is_full = state->tokens == settings->burst_bytes * TOKENS_PER_BYTE;

		if (!changed && (!stored_packets || is_full))
			break;
	}
	if (state->next_update <= now)
		state->next_update += (now - state->next_update) / UPDATE_INTERVAL_NS *
					      UPDATE_INTERVAL_NS +
				      UPDATE_INTERVAL_NS;
	return 0;
}

LAW void law_advance(struct law_state *state, const struct law_settings *settings, u64 now,
		     struct backlog backlog)
{
	/* The size of the bucket may have changed. */
	state->tokens = least(state->tokens, settings->burst_bytes * TOKENS_PER_BYTE);
	if (state->next_update <= now)
		make_updates(state, settings, now, backlog.packets, backlog.bytes);
}

/* Whether an arrival is at risk, and unlucky (`drop_early`). */
LAW int is_unlucky(struct law_state *state, const struct law_settings *settings, u32 len,
		   struct backlog backlog)
{
	u64 own = state->probability_q56 / MEAN_PACKET_BYTES;

	if (state->burst_left_ns)
		return 0;
	if (!state->probability_q56)
		state->accumulated_q56 = 0;
	if (state->activity == INACTIVE) {
		if (backlog.bytes < settings->buffer_bytes / 3)
			return 0;
		state->activity = QUIESCENT;
		state->quiet_updates = 0;
	}
	own = len && own > LOW_Q56 / len ? LOW_Q56 : own * len;
	/* Both are far below 2^63; nothing resets the sum while the delay is low. */
	state->accumulated_q56 = least(state->accumulated_q56 + own, 1ULL << 62);
	if ((state->old_delay_ns < settings->target_ns / 2 &&
	     state->probability_q56 < TWENTY_PERCENT_Q56) ||
	    backlog.bytes <= 2 * MEAN_PACKET_BYTES || state->accumulated_q56 < LOW_Q56)
		return 0;
	return state->accumulated_q56 >= HIGH_Q56 || law_random() >> 8 <= own;
}

LAW int law_drops_arrival(struct law_state *state, const struct law_settings *settings, u64 now,
			  u32 len, struct backlog backlog)
{
	law_advance(state, settings, now, backlog);
	if (!is_unlucky(state, settings, len, backlog))
		return 0;
	state->accumulated_q56 = 0;
	if (state->activity == QUIESCENT) {
		state->activity = ACTIVE;
		state->quiet_updates = 0;
		state->burst_left_ns = MAX_BURST_NS;
	}
	return 1;
}

LAW void law_refused(struct law_state *state, const struct law_settings *settings, u64 now,
		     struct backlog backlog)
{
	law_advance(state, settings, now, backlog);
	state->accumulated_q56 = 0;
}

LAW int law_drops_head(struct law_state *state, const struct law_settings *settings, u64 now,
		       u64 arrived, struct backlog left)
{
	(void)state, (void)settings, (void)now, (void)arrived, (void)left;
	return 0;
}

LAW void law_sent(struct law_state *state, const struct law_settings *settings, u64 now, u32 len)
{
	refill(state, settings, now);
	state->tokens -= least(state->tokens, len * TOKENS_PER_BYTE);
}

#include "queue.h"
#ifdef __bpf__
#include "kernel.h"
#else
#include "native.h"
#endif
