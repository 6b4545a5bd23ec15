/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * A queue of the kernel whose law is plain C: the parts that do not know where packets are stored.
 *
 * bode.c and docsis_pie.c each define a law: struct law_settings, struct law_state, and the
 * functions that are declared below. queue.h adds limits, a rate and counters. kernel.h compiles
 * both as a BPF queue, native.h as a program that replays calls.
 *
 * Times are nanoseconds since the queue was created. All settings are u64, so that no struct has
 * padding, and who writes them needs no compiler.
 */
#ifndef LAW_H
#define LAW_H

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

/* Packets and bytes that are stored. */
struct backlog {
	u64 packets;
	u64 bytes;
};

struct law_settings;
struct law_state;

#define LAW static inline __attribute__((always_inline))
/* The kernel verifies such a function once, not for each path to a call; it may get no null. */
#define ONCE __attribute__((noinline))

/* Sets the state of a queue that was just created. */
LAW void law_start(struct law_state *state, const struct law_settings *settings);

/* Whether an arrival that fits is dropped. The backlog excludes it. */
LAW int law_drops_arrival(struct law_state *state, const struct law_settings *settings, u64 now,
			  u32 len, struct backlog backlog);

/* Called instead of law_drops_arrival for an arrival that does not fit. */
LAW void law_refused(struct law_state *state, const struct law_settings *settings, u64 now,
		     struct backlog backlog);

/* Called before packets are taken out, also if none is stored. */
LAW void law_advance(struct law_state *state, const struct law_settings *settings, u64 now,
		     struct backlog backlog);

/* Whether the head is dropped instead of sent. The backlog excludes it. */
LAW int law_drops_head(struct law_state *state, const struct law_settings *settings, u64 now,
		       u64 arrived, struct backlog left);

/* Called for a packet that leaves. */
LAW void law_sent(struct law_state *state, const struct law_settings *settings, u64 now, u32 len);

/* Returns 64 uniform bits. */
LAW u64 law_random(void);

/*
 * Repeats a block at most `most` times; the verifier of the kernel accepts no loop without a bound.
 * Both loops end early by `break`.
 */
#ifdef __bpf__
struct bpf_iter_num {
	u64 opaque[1];
} __attribute__((aligned(8)));

extern int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end)
	__attribute__((section(".ksyms")));
extern int *bpf_iter_num_next(struct bpf_iter_num *it) __attribute__((section(".ksyms")));
extern void bpf_iter_num_destroy(struct bpf_iter_num *it) __attribute__((section(".ksyms")));

#define repeat(most)                                                                               \
	for (struct bpf_iter_num it __attribute__((cleanup(bpf_iter_num_destroy))),                \
	     *once __attribute__((unused)) = (bpf_iter_num_new(&it, 0, (most)),                    \
					      (void)bpf_iter_num_destroy, (void *)0);              \
	     bpf_iter_num_next(&it);)
#else
#define repeat(most) for (u32 turns = 0; turns < (most); turns++)
#endif

#endif
