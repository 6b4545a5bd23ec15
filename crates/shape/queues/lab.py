#!/usr/bin/env python3
"""Proves the BPF queues on a kernel that has them: run as root in a virtual machine.

    lab.py UNDERLOAD NATIVE [PROOF...]

UNDERLOAD is the program, NATIVE is bode.c compiled for this machine (cc -O2 -o native bode.c).
Prints a line for each proof, by default all, and exits with 1 if one fails.
"""
import ctypes
import fcntl
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

PROGRAM, NATIVE = sys.argv[1:3]
PAYLOAD = 1458  # with UDP, IP and Ethernet headers 1,500 bytes
SO_RCVBUFFORCE = 33
TUNSETIFF = 0x400454CA
# IFF_TUN, IFF_NO_PI and IFF_BACKPRESSURE (Linux 7.3): a full ring stops the queue above it.
TUN_FLAGS = 0x0001 | 0x1000 | 0x0080
failures = []


def sh(command):
    return subprocess.run(command, shell=True, capture_output=True, text=True)


def underload(*words):
    out = subprocess.run([PROGRAM, "kernel-queue", *words], capture_output=True, text=True)
    if out.returncode and "has no kernel queue" not in out.stderr:
        print(f"underload kernel-queue {' '.join(words)}: {out.stderr.strip()}", flush=True)
    return out


def show(device):
    out = underload("show", device, "--json")
    return json.loads(out.stdout)["queues"][0]


def prove(what, holds, numbers):
    print(f"{'ok' if holds else 'FAILED'}: {what}: {numbers}", flush=True)
    if not holds:
        failures.append(what)


def traces():
    maps = [m for m in json.loads(sh("bpftool -j map show").stdout or "[]")
            if m.get("name") in ("ul_bode", "ul_docsis_pie", "queues", "settings")]
    return maps, sh("tc qdisc show dev v0").stdout.strip()


def left():
    """Returns the maps and queues that remain after 5 s. The kernel frees a map some time after its
    last user."""
    for _ in range(50):
        maps, queue = traces()
        if not maps and "ul_" not in queue:
            return []
        time.sleep(0.1)
    return [maps, queue]


def flood(count, interval):
    """Sends numbered packets; returns their times and the numbers that arrived, in order.

    A late sender skips packets instead of sending a burst: the virtual time of a guest jumps while
    it waits for its files.
    """
    sink = sink_socket()
    source = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    source.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 20)
    sent, due = [], 0
    for number in range(count):
        while time.monotonic_ns() < due:
            pass
        sent.append(time.monotonic_ns())
        source.sendto(number.to_bytes(4, "big") + bytes(PAYLOAD - 4), ("10.9.0.2", 9))
        due = sent[-1] + interval
    time.sleep(0.5)
    arrived = []
    try:
        while True:
            arrived.append(int.from_bytes(sink.recv(2048, socket.MSG_DONTWAIT)[:4], "big"))
    except BlockingIOError:
        return sent, arrived


def sink_socket():
    """Returns a socket in the other network namespace, with a buffer for a whole flood."""
    made = []

    def make():
        with open("/run/netns/lab") as namespace:
            ctypes.CDLL(None).setns(namespace.fileno(), 0)
        made.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        made[0].setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        made[0].bind(("0.0.0.0", 9))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    return made[0]


def replayed(settings, sent):
    """Returns the numbers of the packets that the natively compiled queue sends, if the queue
    itself shapes."""
    # `stdbuf` flushes after each line: by default, a C program buffers its output to a pipe.
    native = subprocess.Popen(["stdbuf", "-oL", NATIVE], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)

    def call(line):
        native.stdin.write(line + "\n")
        native.stdin.flush()
        return native.stdout.readline().split()

    call("settings " + " ".join(map(str, settings)))
    numbers, wake = [], None

    def take(now):
        answer = call(f"take {now}")
        if answer[0] == "wait":
            return int(answer[1])
        if answer[-2:-1] == ["sent"]:
            numbers.append(int(answer[-1]))
            return now
        return None

    for now in (each - sent[0] for each in sent):
        while wake is not None and wake < now:
            wake = take(wake)
        call(f"arrive {now} {PAYLOAD + 42} 0")
        wake = take(now) if wake is None else wake
    while wake is not None:
        wake = take(wake)
    native.stdin.close()
    native.wait()
    return numbers


def bounds():
    for device, bound_ms, mbit in (("v0", 20, 20), ("v0", 5, 10)):
        underload("add", device, f"bode:bound={bound_ms}ms,rate={mbit}mbit")
        sent, arrived = flood(4_000, int(12e12 / (1.5e6 * mbit)))
        counts = show(device)
        packet_ms = 12e3 / (mbit * 1e3)
        longest = counts["longest_sojourn_ns"] / 1e6
        limit = bound_ms + packet_ms
        prove(f"bode:bound={bound_ms}ms at 1.5 times {mbit} Mbit/s", longest <= limit,
              f"longest wait {longest:.3f} ms (at most {limit:.1f}), {counts['sent']} sent, "
              f"{counts['late']} dropped")
        words = [1, mbit * 10**6, 1000, 2**64 - 1, bound_ms * 10**6, 3, 0]
        expected = replayed(words, sent)
        # Timing differs slightly: a packet whose wait is close to the bound may be sent by one
        # queue and dropped by the other.
        shifts = [abs(a - b) for a, b in zip(arrived, expected)]
        differ = len(set(expected) ^ set(arrived)) / len(sent)
        prove("fates of timed packets", abs(len(arrived) - len(expected)) <= 2 and max(shifts) <= 2,
              f"{len(arrived)} arrived, {len(expected)} in the replay; {100 * differ:.1f} % of "
              f"fates differ, the nth packet sent is at most {max(shifts)} packets another")
        underload("remove", device)


def two_and_change():
    underload("add", "v0", "bode:bound=20ms,rate=20mbit")
    underload("add", "w0", "bode:bound=5ms,rate=5mbit")
    flood(2_000, 400_000)
    second = show("w0")
    prove("two queues", show("v0")["sent"] > 1_300 and second["sent"] < 20,
          f"{show('v0')['sent']} and {second['sent']} sent, {second['queue']}")
    changer = threading.Timer(0.3, lambda: underload("change", "v0", "bode:bound=2ms,rate=20mbit"))
    changer.start()
    _, arrived = flood(6_000, 400_000)
    changer.join()
    gaps = max(b - a for a, b in zip(arrived, arrived[1:]))
    prove("a change under load", "bound=2ms" in show("v0")["queue"] and gaps < 60,
          f"{len(arrived)} of 6000 arrived, at most {gaps - 1} lost in a row")
    remover = threading.Timer(0.2, lambda: underload("remove", "v0"))
    remover.start()
    _, arrived = flood(2_000, 500_000)
    remover.join()
    prove("removed under load", len(arrived) > 1_500, f"{len(arrived)} of 2000 arrived")
    underload("remove", "w0")


def docsis_pie():
    underload("add", "v0", "docsis-pie:rate=10mbit")
    _, arrived = flood(8_000, 900_000)
    counts = show("v0")
    prove("docsis-pie at 1.33 times its rate", counts["early"] > 100,
          f"{counts['sent']} sent, {counts['early']} early drops, {counts['full']} full, "
          f"longest wait {counts['longest_sojourn_ns'] / 1e6:.1f} ms")
    underload("remove", "v0")


def waiting_packet(add, remove):
    """Returns the instructions per packet when each packet waits: the device is full, and each
    packet sent follows a read of another."""
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"t0", TUN_FLAGS))
    sh("ip link set t0 txqueuelen 4; ip addr add 10.8.0.1/24 dev t0; ip link set t0 up")
    add()
    # A fresh process, because Python's own instructions depend on what it did before.
    counted = subprocess.run([sys.executable, __file__, "count", str(device)], text=True,
                             capture_output=True, pass_fds=[device], env={"PYTHONHASHSEED": "0"})
    remove()
    os.close(device)
    return float(counted.stdout)


def count(device):
    """Prints the nanoseconds per packet; they equal instructions if QEMU derives time from its
    instruction count."""
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect(("10.8.0.2", 9))
    data = bytes(PAYLOAD + 14)
    for _ in range(20):
        sender.send(data)
    spans = []
    for _ in range(2_000):
        started = time.monotonic_ns()
        sender.send(data)
        os.read(device, 2048)
        spans.append(time.monotonic_ns() - started)
    # The first packets fill caches of the kernel. Packets leave the queue two at a time, and the
    # median leaves out the groups with a tick of the kernel's timer.
    groups = sorted(sum(spans[i:i + 8]) / 8 for i in range(400, len(spans), 8))
    print(groups[len(groups) // 2])


def instructions():
    """Prints the instructions per packet in excess of pfifo's, and those executed in our BPF
    programs."""
    def linux(kind):
        return waiting_packet(lambda: sh(f"tc qdisc add dev t0 root {kind} limit 1000"),
                              lambda: None)

    def ours(spec, remove=lambda: None):
        return waiting_packet(lambda: underload("add", "t0", spec),
                              lambda: (remove(), underload("remove", "t0")))

    def inside(spec):
        """Returns the kernel's run-time statistics of our programs; they include the kernel's
        reading of the clock."""
        programs = {}

        def read():
            listed = json.loads(sh("bpftool -j prog show").stdout)
            programs.update({p["name"]: p["run_time_ns"] / p["run_cnt"] for p in listed
                             if p.get("run_cnt") and p["name"] in ("enqueue", "dequeue")})

        sh("sysctl kernel.bpf_stats_enabled=1")
        ours(spec, read)
        sh("sysctl kernel.bpf_stats_enabled=0")
        return ", ".join(f"{name} {each:.0f}" for name, each in programs.items())

    sh("modprobe tun; echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6")
    least = linux("pfifo")
    more = {kind: linux(kind) - least for kind in ("codel", "pie")}
    specs = ("bode:bound=20ms", "docsis-pie:rate=10gbit")
    more |= {spec: ours(spec) - least for spec in specs}
    numbers = ", ".join(f"{name} {count:.0f}" for name, count in more.items())
    prove("instructions of a packet that waits, beyond pfifo's", more["bode:bound=20ms"] > 0,
          numbers)
    for spec in specs:
        print(f"{spec}, inside of its programs: {inside(spec)}", flush=True)


def kills():
    random.seed(1)
    started = time.monotonic()
    underload("add", "v0", "bode:bound=20ms,rate=20mbit")
    span = time.monotonic() - started
    underload("remove", "v0")
    done = 0
    for _ in range(10):
        loader = subprocess.Popen([PROGRAM, "kernel-queue", "add", "v0", "bode:rate=20mbit"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(random.random() * span * 1.1)
        loader.send_signal(signal.SIGKILL)
        loader.wait()
        time.sleep(span)  # A bpftool that was started goes on, and ends.
        done += "ul_bode" in traces()[1]
        underload("remove", "v0")
        rest = left()
        if rest:
            prove("kill -9 of the loader", False, rest)
            return
    prove("kill -9 of the loader at 10 moments", True,
          f"{done} queues were added; `remove` left no queue, no map, no object")


def main():
    sh("ip netns add lab; ip link add v0 type veth peer name v1 netns lab; ip link set v0 up;"
       "ip addr add 10.9.0.1/24 dev v0; ip -n lab link set v1 up; ip link add w0 type veth peer "
       "name w1; ip link set w0 up; ip link set w1 up; ip -n lab addr add 10.9.0.2/24 dev v1; "
       "ping -c 1 10.9.0.2")
    print(os.uname().release, flush=True)
    # Run each program once so that its files are cached: a guest's time jumps while it waits for
    # files.
    sh(f"cat {PROGRAM} {NATIVE} $(command -v bpftool tc ip) > /dev/null; tc -V; ip -V")
    sh(f"bpftool struct_ops show; bpftool -j map show; {PROGRAM} kernel-queue show")
    proofs = {each.__name__: each for each in (bounds, two_and_change, docsis_pie, instructions, kills)}
    for name in sys.argv[3:] or proofs:
        proofs[name]()
    rest = left()
    prove("nothing is left", not rest, rest)
    sys.exit(bool(failures))


if PROGRAM == "count":
    count(int(NATIVE))
else:
    main()
