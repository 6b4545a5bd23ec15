/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * A program that replays calls, a line each, and prints a line for each:
 *
 *   settings WORD...        the settings as numbers; begins a new queue
 *   arrive TIME LEN RANDOM  stored, full or early; RANDOM is one more random number to be drawn
 *   take TIME               the packets that are dropped, then sent, empty or wait TIME
 *   state                   the state of the law as numbers
 *
 * Packets are numbered by their arrival.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARRIVALS_MAX (1 << 20)

struct packet {
	u64 id;
	u64 arrived;
	u32 len;
};

static struct packet packets[ARRIVALS_MAX];
static u64 randoms[ARRIVALS_MAX];
static u64 first, last, drawn, offered;
static struct queue queue;

LAW u64 law_random(void)
{
	if (drawn >= offered) {
		fprintf(stderr, "more random numbers were drawn than packets arrived\n");
		exit(1);
	}
	return randoms[drawn++];
}

static void start(const char *words)
{
	u64 *settings = (u64 *)&queue.settings;
	char *end;

	memset(&queue, 0, sizeof(queue));
	first = last = drawn = offered = 0;
	for (size_t i = 0; i < sizeof(queue.settings) / sizeof(u64); i++, words = end) {
		settings[i] = strtoull(words, &end, 10);
		if (end == words) {
			fprintf(stderr, "expected %zu settings\n", sizeof(queue.settings) / 8);
			exit(1);
		}
	}
	queue_start(&queue);
	puts("ready");
}

static void arrive(u64 now, u32 len, u64 random)
{
	static const char *const words[] = { "stored", "full", "early" };
	u64 id = offered++;

	randoms[id] = random;
	enum admission admission = queue_offer(&queue, now, len);

	if (admission == STORED)
		packets[last++] = (struct packet){ id, now, len };
	puts(words[admission]);
}

static void take(u64 now)
{
	u64 start = queue_next_start(&queue, now);

	if (start > now) {
		printf("wait %llu\n", start);
		return;
	}
	queue_advance(&queue, now);
	while (first < last) {
		struct packet packet = packets[first++];

		if (queue_serves(&queue, now, packet.arrived, packet.len)) {
			printf("sent %llu\n", packet.id);
			return;
		}
		printf("dropped %llu ", packet.id);
	}
	puts("empty");
}

static void print_state(void)
{
	const u64 *words = (const u64 *)&queue.law;

	fputs("state", stdout);
	for (size_t i = 0; i < sizeof(queue.law) / sizeof(u64); i++)
		printf(" %llu", words[i]);
	puts("");
}

int main(void)
{
	char line[1024];
	u64 now, random;
	u32 len;

	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "settings ", 9))
			start(line + 9);
		else if (offered < ARRIVALS_MAX &&
			 sscanf(line, "arrive %llu %u %llu", &now, &len, &random) == 3)
			arrive(now, len, random);
		else if (!strcmp(line, "state\n"))
			print_state();
		else if (sscanf(line, "take %llu", &now) == 1)
			take(now);
		else
			return 1;
	}
	return 0;
}
