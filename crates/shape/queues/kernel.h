/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * A queue as a struct_ops program of the kernel (CONFIG_NET_SCH_BPF, Linux 6.16 and newer). The
 * functions of the kernel that it calls are open to programs with a GPL-compatible licence alone.
 *
 * One object serves up to QUEUES_MAX queues. Each Qdisc owns an entry of `queues` from init to
 * destroy, and stores its number, counted from 1, in its field `limit`, which the kernel does not
 * use for a BPF queue. The kernel calls destroy also after an init that failed or never ran.
 * Packets wait in rings: arrays are the one place that a program reaches without a call, while a
 * list of the kernel costs an allocation per packet. `settings` has an entry for each device,
 * written by the loader; a queue looks for a new version at most once in REFRESH_NS. Packets pass
 * under the lock of the root qdisc.
 *
 * Types are those members of the kernel's that are used; the loader finds their places (CO-RE).
 */
#ifndef KERNEL_H
#define KERNEL_H

#define SECTION(name) __attribute__((section(name), used))
#define KFUNC __attribute__((section(".ksyms")))
#define KPTR __attribute__((btf_type_tag("kptr")))
#define KERNEL_TYPE __attribute__((preserve_access_index))

struct sk_buff {
	char cb[48];
} KERNEL_TYPE;

struct qdisc_skb_cb {
	u32 pkt_len;
	/* A queue may write here; so does each queue of the kernel. */
	unsigned char data[20];
} KERNEL_TYPE;

struct ns_common {
	u32 inum;
} KERNEL_TYPE;

struct net {
	struct ns_common ns;
} KERNEL_TYPE;

typedef struct {
	struct net *net;
} KERNEL_TYPE possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
} KERNEL_TYPE;

struct netdev_queue {
	struct net_device *dev;
} KERNEL_TYPE;

struct qdisc_skb_head {
	u32 qlen;
} KERNEL_TYPE;

struct gnet_stats_queue {
	u32 backlog;
	u32 drops;
} KERNEL_TYPE;

struct Qdisc {
	u32 limit;
	struct netdev_queue *dev_queue;
	struct qdisc_skb_head q;
	struct gnet_stats_queue qstats;
} KERNEL_TYPE;

struct nlattr;
struct netlink_ext_ack;

struct bpf_sk_buff_ptr {
	struct sk_buff *skb;
};

struct Qdisc_ops {
	char id[16];
	int (*enqueue)(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free);
	struct sk_buff *(*dequeue)(struct Qdisc *sch);
	int (*init)(struct Qdisc *sch, struct nlattr *options, struct netlink_ext_ack *ack);
	void (*reset)(struct Qdisc *sch);
	void (*destroy)(struct Qdisc *sch);
};

extern void bpf_kfree_skb(struct sk_buff *skb) KFUNC;
extern void bpf_qdisc_skb_drop(struct sk_buff *skb, struct bpf_sk_buff_ptr *to_free) KFUNC;
extern void bpf_qdisc_watchdog_schedule(struct Qdisc *sch, u64 expire, u64 slack) KFUNC;
extern void bpf_qdisc_bstats_update(struct Qdisc *sch, const struct sk_buff *skb) KFUNC;

/* Helpers by their numbers in include/uapi/linux/bpf.h. */
static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*const bpf_get_prandom_u32)(void) = (void *)7;
static void *(*const bpf_kptr_xchg)(void *place, void *pointer) = (void *)194;

#define TEXT(name) TEXT_OF(name)
#define TEXT_OF(name) #name
#define HASH 1
#define ARRAY 2
#define QUEUES_MAX 32
#define DEVICES_MAX 1024
#define NET_XMIT_SUCCESS 0
#define NET_XMIT_DROP 1
#define ENOENT 2
#define ENOSPC 28
/* Heads that one call may drop; the next follows after 1 us. */
#define DROPS_MAX 1024
/* Packets that a queue stores, a power of two; the loader refuses a larger limit. */
#define RING 16384
#define REFRESH_NS 1000000

struct cell {
	struct sk_buff KPTR *skb;
};

/* A device of a network namespace. */
struct place {
	u32 network;
	u32 device;
};

struct entry {
	/* The address of the Qdisc; 0 if the entry is free. */
	u64 owner;
	/* When the queue was created. */
	u64 started;
	/* When to look for new settings, since `started`. */
	u64 refresh_at;
	/* Packets taken out and put in since the entry was last empty; both wrap. */
	u32 taken, stored;
	struct place place;
	struct queue queue;
};

struct {
	int (*type)[ARRAY];
	int (*max_entries)[QUEUES_MAX];
	u32 *key;
	struct entry *value;
} queues SECTION(".maps");

struct {
	int (*type)[ARRAY];
	int (*max_entries)[QUEUES_MAX * RING];
	u32 *key;
	struct cell *value;
} cells SECTION(".maps");

struct {
	int (*type)[HASH];
	int (*max_entries)[DEVICES_MAX];
	struct place *key;
	struct settings *value;
} settings SECTION(".maps");

LAW u64 law_random(void)
{
	return (u64)bpf_get_prandom_u32() << 32 | bpf_get_prandom_u32();
}

/* Returns the entry of a queue; null before init and after destroy. */
LAW struct entry *entry_of(struct Qdisc *sch)
{
	u32 index = sch->limit - 1;

	return bpf_map_lookup_elem(&queues, &index);
}

LAW void apply(struct entry *entry, const struct settings *latest)
{
	entry->queue.settings = *latest;
	if (entry->queue.settings.limit_packets > RING)
		entry->queue.settings.limit_packets = RING;
}

/* Takes over new settings of the device. Returns the time since the start. */
LAW u64 refresh(struct entry *entry)
{
	u64 now = bpf_ktime_get_ns() - entry->started;

	if (now >= entry->refresh_at) {
		struct place place = entry->place;
		struct settings *latest = bpf_map_lookup_elem(&settings, &place);

		if (latest && latest->version != entry->queue.settings.version)
			apply(entry, latest);
		entry->refresh_at = now + REFRESH_NS;
	}
	return now;
}

LAW struct cell *cell_of(const struct Qdisc *sch, u32 number)
{
	u32 index = (sch->limit - 1) * RING + number % RING;

	return bpf_map_lookup_elem(&cells, &index);
}

/* The compiler would read a field byte by byte, if it took this for an array of characters. */
LAW struct qdisc_skb_cb *cb_of(struct sk_buff *skb)
{
	return __builtin_assume_aligned(skb->cb, sizeof(u64));
}

/* Returns the place for the time of a packet's arrival. */
LAW u64 *arrival_of(struct sk_buff *skb)
{
	return (u64 *)cb_of(skb)->data;
}

SECTION("struct_ops/enqueue")
int enqueue(u64 *context)
{
	struct sk_buff *skb = (void *)context[0];
	struct Qdisc *sch = (void *)context[1];
	struct bpf_sk_buff_ptr *to_free = (void *)context[2];
	u32 len = cb_of(skb)->pkt_len;
	struct entry *entry = entry_of(sch);
	struct sk_buff *other;
	struct cell *cell;
	u64 now;

	if (!entry)
		goto drop;
	cell = cell_of(sch, entry->stored);
	if (!cell)
		goto drop;
	now = refresh(entry);
	if (queue_offer(&entry->queue, now, len) != STORED)
		goto drop;
	*arrival_of(skb) = now;
	entry->stored++;
	/* The cell behind the last packet is empty, which the verifier does not know. */
	other = bpf_kptr_xchg(&cell->skb, skb);
	if (other)
		bpf_qdisc_skb_drop(other, to_free);
	sch->q.qlen++;
	sch->qstats.backlog += len;
	return NET_XMIT_SUCCESS;
drop:
	sch->qstats.drops++;
	bpf_qdisc_skb_drop(skb, to_free);
	return NET_XMIT_DROP;
}

/* Takes the first packet out. Returns null if there is none, or if it is dropped. */
LAW struct sk_buff *serve(struct Qdisc *sch, struct entry *entry, u64 now)
{
	struct cell *cell = cell_of(sch, entry->taken);
	struct sk_buff *skb;
	u32 len;

	if (!cell)
		return 0;
	skb = bpf_kptr_xchg(&cell->skb, 0);
	if (!skb)
		return 0;
	entry->taken++;
	len = cb_of(skb)->pkt_len;
	sch->q.qlen--;
	sch->qstats.backlog -= len;
	if (queue_serves(&entry->queue, now, *arrival_of(skb), len)) {
		bpf_qdisc_bstats_update(sch, skb);
		return skb;
	}
	sch->qstats.drops++;
	bpf_kfree_skb(skb);
	return 0;
}

SECTION("struct_ops/dequeue")
struct sk_buff *dequeue(u64 *context)
{
	struct Qdisc *sch = (void *)context[0];
	struct entry *entry = entry_of(sch);
	struct sk_buff *skb;
	u64 now, start;

	if (!entry)
		return 0;
	now = refresh(entry);
	start = queue_next_start(&entry->queue, now);
	if (start > now) {
		if (entry->queue.backlog.packets)
			bpf_qdisc_watchdog_schedule(sch, entry->started + start, 0);
		return 0;
	}
	queue_advance(&entry->queue, now);
	/* Most heads are sent; a loop costs three calls. */
	skb = serve(sch, entry, now);
	if (skb || !entry->queue.backlog.packets)
		return skb;
	repeat (DROPS_MAX) {
		skb = serve(sch, entry, now);
		if (skb || !entry->queue.backlog.packets)
			return skb;
	}
	bpf_qdisc_watchdog_schedule(sch, entry->started + now + 1000, 0);
	return 0;
}

SECTION("struct_ops/init")
int init(u64 *context)
{
	struct Qdisc *sch = (void *)context[0];
	struct net_device *device = sch->dev_queue->dev;
	struct place place = { device->nd_net.net->ns.inum, device->ifindex };
	struct settings *initial = bpf_map_lookup_elem(&settings, &place);
	u32 number = 0;

	if (!initial)
		return -ENOENT;
	repeat (QUEUES_MAX) {
		u32 index = number++;
		struct entry *entry = bpf_map_lookup_elem(&queues, &index);

		if (!entry || __sync_val_compare_and_swap(&entry->owner, 0, (u64)sch))
			continue;
		entry->started = bpf_ktime_get_ns();
		entry->refresh_at = REFRESH_NS;
		entry->taken = 0;
		entry->stored = 0;
		entry->place = place;
		entry->queue = (struct queue){ 0 };
		apply(entry, initial);
		queue_start(&entry->queue);
		sch->limit = number;
		return 0;
	}
	return -ENOSPC;
}

LAW void flush(struct Qdisc *sch, struct entry *entry)
{
	repeat (RING) {
		struct cell *cell = cell_of(sch, entry->taken);
		struct sk_buff *skb = cell ? bpf_kptr_xchg(&cell->skb, 0) : 0;

		if (!skb)
			return;
		entry->taken++;
		bpf_kfree_skb(skb);
	}
}

SECTION("struct_ops/reset")
void reset(u64 *context)
{
	struct Qdisc *sch = (void *)context[0];
	struct entry *entry = entry_of(sch);

	if (!entry)
		return;
	flush(sch, entry);
	entry->queue.backlog = (struct backlog){ 0, 0 };
	sch->q.qlen = 0;
	sch->qstats.backlog = 0;
}

SECTION("struct_ops/destroy")
void destroy(u64 *context)
{
	struct Qdisc *sch = (void *)context[0];
	struct entry *entry = entry_of(sch);

	if (!entry)
		return;
	flush(sch, entry);
	sch->limit = 0;
	entry->owner = 0;
}

SECTION(".struct_ops")
struct Qdisc_ops QUEUE = {
	.id = TEXT(QUEUE),
	.enqueue = (void *)enqueue,
	.dequeue = (void *)dequeue,
	.init = (void *)init,
	.reset = (void *)reset,
	.destroy = (void *)destroy,
};

const char licence[] SECTION("license") = "Dual MIT/GPL";

#endif
