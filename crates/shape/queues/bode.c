/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * BoDe, Bounded Delay (Abbasloo and Chao, "Bounding Queue Delay in Cellular Networks to Support
 * Ultra-Low Latency Applications", section V), as crates/aqm/src/queue/bode.rs has it: a head that
 * waited too long is dropped, unless it is among the last packets of the queue.
 */
#define QUEUE ul_bode
#include "law.h"

struct law_settings {
	/* The longest sojourn that is served. */
	u64 bound_ns;
	/* A queue of no more packets, head included, loses none. */
	u64 exempt_packets;
	/* Not 0: the authors' release, which counts whole milliseconds and exempts by bytes, too. */
	u64 is_patch;
};

struct law_state {
	/* Packets that were sent after the bound because they were among the last. */
	u64 exempted;
};

#define NS_PER_MS 1000000
/* What the authors' release may leave behind a head that it serves whatever its sojourn. */
#define PATCH_EXEMPT_BYTES 1504

LAW void law_start(struct law_state *state, const struct law_settings *settings)
{
	(void)settings;
	state->exempted = 0;
}

LAW int law_drops_arrival(struct law_state *state, const struct law_settings *settings, u64 now,
			  u32 len, struct backlog backlog)
{
	(void)state, (void)settings, (void)now, (void)len, (void)backlog;
	return 0;
}

LAW void law_refused(struct law_state *state, const struct law_settings *settings, u64 now,
		     struct backlog backlog)
{
	(void)state, (void)settings, (void)now, (void)backlog;
}

LAW void law_advance(struct law_state *state, const struct law_settings *settings, u64 now,
		     struct backlog backlog)
{
	(void)state, (void)settings, (void)now, (void)backlog;
}

LAW int law_drops_head(struct law_state *state, const struct law_settings *settings, u64 now,
		       u64 arrived, struct backlog left)
{
	if (settings->is_patch) {
		u64 waited_ms = now / NS_PER_MS - arrived / NS_PER_MS;

		if (waited_ms <= settings->bound_ns / NS_PER_MS)
			return 0;
		if (left.bytes > PATCH_EXEMPT_BYTES && left.packets >= settings->exempt_packets)
			return 1;
	} else {
		if (now - arrived < settings->bound_ns)
			return 0;
		if (left.packets >= settings->exempt_packets)
			return 1;
	}
	state->exempted++;
	return 0;
}

LAW void law_sent(struct law_state *state, const struct law_settings *settings, u64 now, u32 len)
{
	(void)state, (void)settings, (void)now, (void)len;
}

#include "queue.h"
#ifdef __bpf__
#include "kernel.h"
#else
#include "native.h"
#endif
