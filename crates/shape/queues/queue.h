/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Limits, a rate and counters around a law. The includer stores packets, first in first out, and
 * calls queue_offer for an arrival, queue_next_start and queue_advance before it takes packets out,
 * and queue_serves for each packet that it takes out until one is served.
 */
#ifndef QUEUE_H
#define QUEUE_H

#define NANOSECONDS_PER_BYTE_AT_1_BIT 8000000000ULL
/* A timer that fires late may be made up for by at most this much. */
#define CATCH_UP_NS 1000000ULL

struct settings {
	/* Differs from that of earlier settings of the same device. */
	u64 version;
	/* The rate to which the queue shapes by itself, bit/s; 0 leaves that to the device. */
	u64 rate;
	u64 limit_packets;
	u64 limit_bytes;
	struct law_settings law;
};

struct counts {
	u64 sent;
	u64 sent_bytes;
	/* Arrivals that did not fit. */
	u64 full;
	/* Arrivals that the law dropped. */
	u64 early;
	/* Heads that the law dropped. */
	u64 late;
	u64 longest_sojourn_ns;
};

struct queue {
	struct settings settings;
	struct law_state law;
	struct backlog backlog;
	/* The end of the previous transmission. */
	u64 free_at;
	/* What rounding cut off in this busy period, in units of a nanosecond / rate. */
	u64 carry;
	struct counts counts;
};

enum admission { STORED, FULL, EARLY };

LAW void queue_start(struct queue *queue)
{
	law_start(&queue->law, &queue->settings.law);
}

LAW enum admission queue_offer(struct queue *queue, u64 now, u32 len)
{
	const struct settings *settings = &queue->settings;
	struct backlog backlog = queue->backlog;

	if (backlog.packets >= settings->limit_packets ||
	    backlog.bytes + len > settings->limit_bytes) {
		law_refused(&queue->law, &settings->law, now, backlog);
		queue->counts.full++;
		return FULL;
	}
	if (law_drops_arrival(&queue->law, &settings->law, now, len, backlog)) {
		queue->counts.early++;
		return EARLY;
	}
	queue->backlog.packets++;
	queue->backlog.bytes += len;
	return STORED;
}

/* Returns when a packet may leave: `now`, or later if the queue shapes. */
LAW u64 queue_next_start(const struct queue *queue, u64 now)
{
	return queue->settings.rate && queue->free_at > now ? queue->free_at : now;
}

LAW void queue_advance(struct queue *queue, u64 now)
{
	law_advance(&queue->law, &queue->settings.law, now, queue->backlog);
}

/* Reserves the time of a transmission. A packet that waited for it began when it was due. */
LAW void queue_transmit(struct queue *queue, u64 now, u64 arrived, u32 len)
{
	u64 rate = queue->settings.rate;
	u64 bits = len * NANOSECONDS_PER_BYTE_AT_1_BIT;
	u64 start = now;

	if (!rate)
		return;
	if (arrived <= queue->free_at && now - queue->free_at <= CATCH_UP_NS)
		start = queue->free_at;
	if (start > queue->free_at)
		queue->carry = 0;
	queue->free_at = start + bits / rate;
	queue->carry += bits % rate;
	if (queue->carry >= rate) {
		queue->carry -= rate;
		queue->free_at++;
	}
}

/* Whether a packet that was taken out is sent; else it is dropped. */
LAW int queue_serves(struct queue *queue, u64 now, u64 arrived, u32 len)
{
	u64 sojourn = now - arrived;

	queue->backlog.packets--;
	queue->backlog.bytes -= len;
	if (law_drops_head(&queue->law, &queue->settings.law, now, arrived, queue->backlog)) {
		queue->counts.late++;
		return 0;
	}
	law_sent(&queue->law, &queue->settings.law, now, len);
	queue_transmit(queue, now, arrived, len);
	queue->counts.sent++;
	queue->counts.sent_bytes += len;
	if (sojourn > queue->counts.longest_sojourn_ns)
		queue->counts.longest_sojourn_ns = sojourn;
	return 1;
}

#endif
