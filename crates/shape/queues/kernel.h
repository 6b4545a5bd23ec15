/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * A queue as a struct_ops program of the kernel (CONFIG_NET_SCH_BPF, Linux 6.16 and newer). The
 * functions of the kernel that it calls are open to programs with a GPL-compatible licence alone.
 *
 * One object serves any number of devices. `queues` has an entry for each Qdisc, by its address,
 * from init to destroy; the kernel calls destroy also after an init that failed or never ran.
 * `settings` has an entry for each device, written by the loader; a new version of it applies to
 * the next packet. Packets pass under the lock of the root qdisc; the lock of an entry is
 * what the verifier expects around a list.
 *
 * Types are those members of the kernel's that are used; the loader finds their places (CO-RE).
 */
#ifndef KERNEL_H
#define KERNEL_H

#define SECTION(name) __attribute__((section(name), used))
#define KFUNC __attribute__((section(".ksyms")))
#define KPTR __attribute__((btf_type_tag("kptr")))
#define CONTAINS(type, member) __attribute__((btf_decl_tag("contains:" #type ":" #member)))
#define KERNEL_TYPE __attribute__((preserve_access_index))

struct sk_buff {
	char cb[48];
} KERNEL_TYPE;

struct qdisc_skb_cb {
	u32 pkt_len;
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

struct bpf_spin_lock {
	u32 val;
};

struct bpf_list_head {
	u64 opaque[2];
} __attribute__((aligned(8)));

struct bpf_list_node {
	u64 opaque[3];
} __attribute__((aligned(8)));

extern void *bpf_obj_new_impl(u64 type, void *meta) KFUNC;
extern void bpf_obj_drop_impl(void *object, void *meta) KFUNC;
extern int bpf_list_push_back_impl(struct bpf_list_head *head, struct bpf_list_node *node,
				   void *meta, u64 offset) KFUNC;
extern struct bpf_list_node *bpf_list_pop_front(struct bpf_list_head *head) KFUNC;
extern void bpf_kfree_skb(struct sk_buff *skb) KFUNC;
extern void bpf_qdisc_skb_drop(struct sk_buff *skb, struct bpf_sk_buff_ptr *to_free) KFUNC;
extern void bpf_qdisc_watchdog_schedule(struct Qdisc *sch, u64 expire, u64 slack) KFUNC;
extern void bpf_qdisc_bstats_update(struct Qdisc *sch, const struct sk_buff *skb) KFUNC;

/* Helpers by their numbers in include/uapi/linux/bpf.h. */
static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value,
					 u64 flags) = (void *)2;
static long (*const bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*const bpf_get_prandom_u32)(void) = (void *)7;
static long (*const bpf_spin_lock)(struct bpf_spin_lock *lock) = (void *)93;
static long (*const bpf_spin_unlock)(struct bpf_spin_lock *lock) = (void *)94;
static void *(*const bpf_kptr_xchg)(void *place, void *pointer) = (void *)194;

#define TYPE_ID(type) __builtin_btf_type_id(*(type *)0, 0 /* BPF_TYPE_ID_LOCAL */)
#define TEXT(name) TEXT_OF(name)
#define TEXT_OF(name) #name
#define HASH 1
#define QUEUES_MAX 1024
#define NET_XMIT_SUCCESS 0
#define NET_XMIT_DROP 1
#define ENOENT 2
#define ENOMEM 12
/* Heads that one call may drop; the next follows after 1 us. */
#define DROPS_MAX 1024
#define PACKETS_MAX (1 << 22)

struct item {
	struct bpf_list_node node;
	struct sk_buff KPTR *skb;
	u64 arrived;
	u64 len;
};

/* A device of a network namespace. */
struct place {
	u32 network;
	u32 device;
};

struct entry {
	struct bpf_spin_lock lock;
	struct bpf_list_head fifo CONTAINS(item, node);
	/* When the queue was created. */
	u64 started;
	struct place place;
	struct queue queue;
};

struct {
	int (*type)[HASH];
	int (*max_entries)[QUEUES_MAX];
	u64 *key;
	struct entry *value;
} queues SECTION(".maps");

struct {
	int (*type)[HASH];
	int (*max_entries)[QUEUES_MAX];
	struct place *key;
	struct settings *value;
} settings SECTION(".maps");

/* The initial value of an entry, too large for the stack. */
const struct entry blank;

LAW u64 law_random(void)
{
	return (u64)bpf_get_prandom_u32() << 32 | bpf_get_prandom_u32();
}

LAW struct entry *entry_of(struct Qdisc *sch)
{
	u64 key = (u64)sch;

	return bpf_map_lookup_elem(&queues, &key);
}

/* Takes over the settings of the device if they are new. Returns the time since the start. */
LAW u64 refresh(struct entry *entry)
{
	struct place place = entry->place;
	struct settings *latest = bpf_map_lookup_elem(&settings, &place);

	if (latest && latest->version != entry->queue.settings.version)
		entry->queue.settings = *latest;
	return bpf_ktime_get_ns() - entry->started;
}

/* Takes the first packet out, with its time of arrival and its length. */
LAW struct sk_buff *pop(struct entry *entry, u64 *arrived, u32 *len)
{
	struct bpf_list_node *node;
	struct sk_buff *skb;
	struct item *item;

	bpf_spin_lock(&entry->lock);
	node = bpf_list_pop_front(&entry->fifo);
	bpf_spin_unlock(&entry->lock);
	if (!node)
		return 0;
	item = (struct item *)((char *)node - __builtin_offsetof(struct item, node));
	skb = bpf_kptr_xchg(&item->skb, 0);
	*arrived = item->arrived;
	*len = item->len;
	bpf_obj_drop_impl(item, 0);
	return skb;
}

SECTION("struct_ops/enqueue")
int enqueue(u64 *context)
{
	struct sk_buff *skb = (void *)context[0];
	struct Qdisc *sch = (void *)context[1];
	struct bpf_sk_buff_ptr *to_free = (void *)context[2];
	u32 len = ((struct qdisc_skb_cb *)skb->cb)->pkt_len;
	struct entry *entry = entry_of(sch);
	struct sk_buff *other;
	struct item *item;
	u64 now;

	if (!entry)
		goto drop;
	now = refresh(entry);
	item = bpf_obj_new_impl(TYPE_ID(struct item), 0);
	if (!item) {
		entry->queue.counts.full++;
		goto drop;
	}
	if (queue_offer(&entry->queue, now, len) != STORED) {
		bpf_obj_drop_impl(item, 0);
		goto drop;
	}
	item->arrived = now;
	item->len = len;
	/* A new item has no packet, which the verifier does not know. */
	other = bpf_kptr_xchg(&item->skb, skb);
	if (other)
		bpf_qdisc_skb_drop(other, to_free);
	bpf_spin_lock(&entry->lock);
	bpf_list_push_back_impl(&entry->fifo, &item->node, 0, 0);
	bpf_spin_unlock(&entry->lock);
	sch->q.qlen++;
	sch->qstats.backlog += len;
	return NET_XMIT_SUCCESS;
drop:
	sch->qstats.drops++;
	bpf_qdisc_skb_drop(skb, to_free);
	return NET_XMIT_DROP;
}

SECTION("struct_ops/dequeue")
struct sk_buff *dequeue(u64 *context)
{
	struct Qdisc *sch = (void *)context[0];
	struct entry *entry = entry_of(sch);
	u64 now, start, arrived = 0;
	u32 len = 0;

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
	repeat (DROPS_MAX) {
		struct sk_buff *skb = pop(entry, &arrived, &len);

		if (!skb)
			return 0;
		sch->q.qlen--;
		sch->qstats.backlog -= len;
		if (queue_serves(&entry->queue, now, arrived, len)) {
			bpf_qdisc_bstats_update(sch, skb);
			return skb;
		}
		sch->qstats.drops++;
		bpf_kfree_skb(skb);
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
	u64 key = (u64)sch;
	struct entry *entry;

	if (!initial)
		return -ENOENT;
	if (bpf_map_update_elem(&queues, &key, &blank, 0))
		return -ENOMEM;
	entry = bpf_map_lookup_elem(&queues, &key);
	if (!entry)
		return -ENOMEM;
	entry->started = bpf_ktime_get_ns();
	entry->place = place;
	entry->queue.settings = *initial;
	queue_start(&entry->queue);
	return 0;
}

LAW void flush(struct entry *entry)
{
	u64 arrived = 0;
	u32 len = 0;

	repeat (PACKETS_MAX) {
		struct sk_buff *skb = pop(entry, &arrived, &len);

		if (!skb)
			return;
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
	flush(entry);
	entry->queue.backlog = (struct backlog){ 0, 0 };
	sch->q.qlen = 0;
	sch->qstats.backlog = 0;
}

SECTION("struct_ops/destroy")
void destroy(u64 *context)
{
	u64 key = context[0];
	struct entry *entry = bpf_map_lookup_elem(&queues, &key);

	if (!entry)
		return;
	flush(entry);
	bpf_map_delete_elem(&queues, &key);
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
