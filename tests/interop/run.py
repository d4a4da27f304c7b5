#!/usr/bin/env python3
"""Runs Peal's software ConnectX against Linux's Soft-RoCE, one check a line. To be started in a
network namespace of its own; `./dev interop` does.
Usage: run.py FOLDER PEER [--only TEXT | --shell]: FOLDER as guest/make_image.sh made it, PEER the
peal_interop_peer. Exit status: 0 all checks hold, 1 one does not."""
import argparse
import functools
import os
import signal
import socket
import struct
import subprocess
import sys
import time

import capture
import icrc
import machines
from machines import GUEST, HOST, Broken

SIZES = (0, 1, 5, 1021, 1024, 1025, 4096, 16384, 1 << 20)
ALL = 2 << 20  # bytes of memory of each end
PLACE = 8192 + 192  # in the memory that is written or read
WRAP = 1 << 24
SHOWN_PACKETS = 12  # of a check that fails: its last
LINK_MTU = 4500  # so that both ends can have a path MTU of 4096

RNR_RETRIES_EXCEEDED, RETRIES_EXCEEDED, REMOTE_ACCESS = 13, 12, 10  # ibv_wc_status
SYNDROME_REMOTE_ACCESS, SYNDROME_RETRIES, SYNDROME_RNR_RETRIES = 0x13, 0x15, 0x16
LINUX_RNR_RETRIES = 3


class Failed(Exception):
    """A check does not hold."""


def expect(holds, why):
    if not holds:
        raise Failed(why)


class TooLong(Exception):
    """A check did not end in its time."""


CHECKS = []


def check(name, seconds=60, **arguments):
    """Makes a check of a function that takes the lab, with these further arguments."""

    def add(function):
        CHECKS.append((name, seconds, functools.partial(function, **arguments)))
        return function

    return add


def for_each(name, values, seconds=60):
    """One for each value, which the function takes as its second argument."""

    def add(function):
        for value in values:
            CHECKS.append((name.format(value), seconds, lambda lab, v=value: function(lab, v)))
        return function

    return add


def run_ip(root, *arguments):
    subprocess.run(["chroot", root, "/bin/ip", *arguments], check=True, timeout=20)


class Lab:
    """The two ends, each with one queue pair and one region, and the wire between them."""

    def __init__(self, root, peer):
        self.root = root
        tap = machines.make_tap(LINK_MTU, functools.partial(run_ip, root))
        self.wire = capture.Capture(machines.TAP)
        self.peal = None
        self.spoiled = 0  # packets with a wrong ICRC, sent on purpose
        try:
            self.guest, self.kernel = machines.boot(root, tap, LINK_MTU)
        except BaseException:
            self.wire.end()
            raise
        finally:
            os.close(tap)
        try:
            self.peal = machines.End("Peal", [peer, HOST, GUEST])
            self.peal_mtu = self.peal.answer(30).number("mtu")
        except BaseException:
            self.end()
            raise

    def end(self):
        for end in (self.peal, self.guest):
            if end is not None:
                end.end()
        self.wire.end()

    def connect(self, peal_psn=100, rxe_psn=200, mtu=1024, timeout=18, retry=6,
                rnr_timer=12, peal_qpn=None):
        """New queue pairs, connected. `peal_qpn` is what Linux is told instead of Peal's. A timeout
        of 18 is 1.07 s: not passed by an end that only waits for a processor. `rnr_timer`, coded, is
        what Linux's RNR NAKs say: 12 is 0.64 ms, 0 is 655 ms."""
        p = self.peal.must(f"open {peal_psn} {timeout} {retry}")
        g = self.guest.must(f"open {rxe_psn}")
        self.p = {name: p.number(name) for name in ("qpn", "psn", "rkey", "address")}
        self.g = {name: g.number(name) for name in ("qpn", "psn", "rkey", "address")}
        self.peal.must(f"connect {self.g['qpn']} {self.g['psn']} {mtu}")
        self.guest.must(f"connect {peal_qpn or self.p['qpn']} {self.p['psn']} ::ffff:{HOST} {mtu} "
                        f"{timeout} {retry} {LINUX_RNR_RETRIES} {rnr_timer}")

    def states(self):
        return self.peal.must("state")["state"], self.guest.must("state")["state"]

    def impair(self, arriving=None, leaving=None):
        """What netem does to what arrives at the guest and to what leaves it."""
        for device, how in (("ifb0", arriving), ("eth0", leaving)):
            tc = f"replace dev {device} root netem {how}" if how else f"del dev {device} root"
            self.guest.ask(f"sh /sbin/tc qdisc {tc}")

    def statistic(self):
        """The counters of `rdma statistic`."""
        words = self.guest.must("sh rdma statistic show link rxe0/1").before[-1].split()
        return {words[i]: int(words[i + 1]) for i in range(2, len(words) - 1, 2)}

    def counters(self):
        return {name: int(value) for name, value in self.peal.must("counters").items()}


def crc(end, begin, size):
    return end.must(f"crc {begin} {size}")["crc"]


def surroundings(end, begin, size):
    return crc(end, 0, begin), crc(end, begin + size, ALL - begin - size)


def transfer(lab, by, operation, size, count=1, seed=1):
    """One end writes or reads `count` times `size` bytes at PLACE; they are there, and nothing else
    has changed. Returns the requester's answer."""
    peal, guest = lab.peal, lab.guest
    requester, other, remote = (peal, guest, lab.g) if by == "peal" else (guest, peal, lab.p)
    source, target = (requester, other) if operation == "write" else (other, requester)
    whole = size * count
    source.must(f"fill 0 {ALL} {seed}")
    target.must(f"fill 0 {ALL} {seed + 1000}")
    before = surroundings(target, PLACE, whole)
    answer = requester.ask(f"{operation} {PLACE} {size} {remote['address'] + PLACE} {remote['rkey']} "
                           f"{count}")
    expect(answer.ok, f"{requester.name} says: {answer.text}")
    expect(crc(target, PLACE, whole) == crc(source, PLACE, whole), "what arrived is not what was sent")
    expect(surroundings(target, PLACE, whole) == before, "the neighbours have changed")
    return answer


def write_packets(size, psn, mtu, address, rkey):
    """What one write must be on the wire: (opcode, PSN, pad, payload, RETH or Nones) of each."""
    count = max(1, -(-size // mtu))
    packets = []
    for i in range(count):
        payload = min(mtu, size - i * mtu)
        if count == 1:
            opcode = 10
        else:
            opcode = 6 if i == 0 else 8 if i == count - 1 else 7
        reth = (address, rkey, size) if i == 0 else (None, None, None)
        packets.append((opcode, (psn + i) % WRAP, -payload % 4, payload) + reth)
    return packets


def looks(packet):
    return (packet.opcode, packet.psn, packet.pad, packet.payload_bytes, packet.address, packet.rkey,
            packet.length)


def expect_sent(lab, source, begin, expected):
    """That these were the requests from an end since frame `begin`, and the last asked for an ACK.
    What was sent again, as it is where an end was too slow, counts once."""
    first = {}
    for p in lab.wire.packets(begin, lab.wire.settled()):
        if p.source == source and p.opcode <= 12:
            first.setdefault(p.psn, p)
    packets = list(first.values())
    for i, (packet, wanted) in enumerate(zip(packets, expected)):
        expect(looks(packet) == wanted, f"packet {i} is {packet}, not {wanted}")
    expect(len(packets) == len(expected), f"there were {len(packets)} packets, not {len(expected)}")
    expect(packets[-1].asks == 1, "its last packet asks for no ACK")


# ---- Writes and reads ---------------------------------------------------------------------------


def write_and_look(lab, by, size, mtu):
    # The message has the wrap in it, or right before it where it is one packet.
    psn = (WRAP - max(1, -(-size // mtu) // 2)) % WRAP
    lab.connect(peal_psn=psn, rxe_psn=psn, mtu=mtu)
    begin = lab.wire.settled()
    transfer(lab, by, "write", size)
    source, remote = (HOST, lab.g) if by == "peal" else (GUEST, lab.p)
    expect_sent(lab, source, begin,
                write_packets(size, psn, mtu, remote["address"] + PLACE, remote["rkey"]))
    transfer(lab, by, "write", 1024, seed=2)  # behind the wrap
    expect(lab.states() == ("RTS", "RTS"), f"the states are {lab.states()}")


@for_each("Peal writes {} bytes across the PSN wrap", SIZES)
def peal_writes(lab, size):
    write_and_look(lab, "peal", size, 1024)


@for_each("Linux writes {} bytes across the PSN wrap", SIZES)
def linux_writes(lab, size):
    write_and_look(lab, "linux", size, 1024)


@for_each("Peal writes {} bytes, MTU 4096", (4095, 4097, 1 << 20))
def peal_writes_4096(lab, size):
    write_and_look(lab, "peal", size, 4096)


@for_each("Linux writes {} bytes, MTU 4096", (4095, 4097, 1 << 20))
def linux_writes_4096(lab, size):
    write_and_look(lab, "linux", size, 4096)


@for_each("Peal reads {} bytes", SIZES[1:])
def peal_reads(lab, size):
    lab.connect(peal_psn=WRAP - 3)
    transfer(lab, "peal", "read", size)


@for_each("Linux reads {} bytes", SIZES[1:])
def linux_reads(lab, size):
    lab.connect(rxe_psn=WRAP - 3)
    transfer(lab, "linux", "read", size)


# ---- Atomics ------------------------------------------------------------------------------------


def word(end, begin):
    return end.must(f"word {begin}").number("word")


def add_and_swap(lab, by, count=32):
    """Fetch-adds, each executed once, then a compare-swap that fits and one that does not."""
    requester, other, remote = ((lab.peal, lab.guest, lab.g) if by == "peal"
                                else (lab.guest, lab.peal, lab.p))
    other.must(f"fill 0 {ALL} 7")
    at = f"{remote['address'] + 64} {remote['rkey']}"
    first, before = word(other, 64), surroundings(other, 64, 8)
    answer = requester.ask(f"fetch_add 0 8 {at} {count} 3")
    expect(answer.ok, f"{requester.name} says: {answer.text}")
    after = (first + 3 * count) % (1 << 64)
    expect(word(other, 64) == after, f"{count} times 3 added to {first} made {word(other, 64)}")
    for compare, swap, result in ((after, 11, 11), (after, 12, 11)):
        answer = requester.ask(f"compare_swap 0 8 {at} 1 {swap} {compare}")
        expect(answer.ok, f"{requester.name} says: {answer.text}")
        expect(word(other, 64) == result, f"a compare-swap made {word(other, 64)}, not {result}")
    expect(surroundings(other, 64, 8) == before, "the neighbours have changed")


@check("Peal adds to a word of Linux's 32 times, and swaps it", by="peal")
@check("Linux adds to a word of Peal's 32 times, and swaps it", by="linux")
def atomics(lab, by):
    lab.connect(peal_psn=WRAP - 3, rxe_psn=WRAP - 3)
    add_and_swap(lab, by)


# ---- Immediates ---------------------------------------------------------------------------------


@check("Peal writes with an immediate, and Linux receives it")
def peal_writes_immediate(lab):
    lab.connect()
    lab.guest.must("receive 0 16")
    lab.peal.must("fill 0 4096 5")
    answer = lab.peal.ask(f"write_immediate 0 1500 {lab.g['address'] + 4096} {lab.g['rkey']} 1 "
                          f"{0x1234ABCD}")
    expect(answer.ok, f"Peal says: {answer.text}")
    received = lab.guest.must("received")
    expect(received.number("immediate") == 0x1234ABCD, f"it received {received.text}")
    expect(crc(lab.guest, 4096, 1500) == crc(lab.peal, 0, 1500), "what arrived is not what was sent")


@check("Peal writes with an immediate again and again, until Linux has a receive")
def peal_waits_for_receive(lab):
    lab.connect(rnr_timer=0)
    begin = lab.wire.settled()
    lab.peal.tell(f"write_immediate 0 64 {lab.g['address']} {lab.g['rkey']} 1 5")
    naks = answers_to(lab, GUEST, begin, 10)
    expect(naks and naks[0].syndrome >> 5 == 1, f"Linux answers with {naks and str(naks[0])}")
    lab.guest.must("receive 0 16")
    answer = lab.peal.answer()
    expect(answer.ok, f"Peal says: {answer.text}")
    received = lab.guest.must("received")
    expect(received.number("immediate") == 5, f"it received {received.text}")
    expect(lab.states() == ("RTS", "RTS"), f"the states are {lab.states()}")


@check("Peal's write with an immediate ends in syndrome 0x16, as Linux has no receive")
def peal_meets_no_receive(lab):
    lab.connect()
    answer = lab.peal.ask(f"write_immediate 0 64 {lab.g['address']} {lab.g['rkey']} 1 5")
    expect(not answer.ok and answer.number("syndrome") == SYNDROME_RNR_RETRIES,
           f"Peal says: {answer.text}")
    expect(lab.states()[0] == "ERR", f"the states are {lab.states()}")


@check("Linux's write with an immediate is refused, as Peal has no receive")
def linux_writes_immediate(lab):
    lab.connect()
    before = lab.statistic()
    begin = lab.wire.settled()
    answer = lab.guest.ask(f"write_immediate 0 64 {lab.p['address']} {lab.p['rkey']} 1 77")
    expect(not answer.ok and answer.number("status") == RNR_RETRIES_EXCEEDED,
           f"Linux says: {answer.text}")
    naks = [p for p in lab.wire.packets(begin, lab.wire.settled())
            if p.source == HOST and p.opcode == 17 and p.syndrome >> 5 == 1]
    expect(len(naks) > LINUX_RNR_RETRIES, f"Peal answered with {len(naks)} RNR NAKs")
    after = lab.statistic()
    expect(after["retry_rnr_exceeded_err"] == before["retry_rnr_exceeded_err"] + 1,
           "rdma statistic counts no exceeded RNR retries")


# ---- Refusals -----------------------------------------------------------------------------------


@check("Peal's write by a wrong rkey ends in syndrome 0x13, and both queue pairs in error")
def peal_wrong_rkey(lab):
    lab.connect()
    lab.guest.must(f"fill 0 {ALL} 3")
    before = crc(lab.guest, 0, ALL)
    answer = lab.peal.ask(f"write 0 4096 {lab.g['address']} {lab.g['rkey'] ^ 0x1000}")
    expect(not answer.ok and answer.number("syndrome") == SYNDROME_REMOTE_ACCESS,
           f"Peal says: {answer.text}")
    expect(lab.states() == ("ERR", "ERR"), f"the states are {lab.states()}")
    expect(crc(lab.guest, 0, ALL) == before, "memory of Linux's has changed")


@check("Linux's write by a wrong rkey ends in a remote access error, and both queue pairs in error")
def linux_wrong_rkey(lab):
    lab.connect()
    lab.peal.must(f"fill 0 {ALL} 3")
    before = crc(lab.peal, 0, ALL)
    begin = lab.wire.settled()
    answer = lab.guest.ask(f"write 0 4096 {lab.p['address']} {lab.p['rkey'] ^ 0x1000}")
    expect(not answer.ok and answer.number("status") == REMOTE_ACCESS, f"Linux says: {answer.text}")
    naks = [p.syndrome for p in lab.wire.packets(begin, lab.wire.settled())
            if p.source == HOST and p.opcode == 17]
    expect(naks == [0x62], f"Peal's answers were {naks}")
    expect(lab.states() == ("ERR", "ERR"), f"the states are {lab.states()}")
    expect(crc(lab.peal, 0, ALL) == before, "memory of Peal's has changed")


# ---- Loss ---------------------------------------------------------------------------------------


def sent_again(lab, source, begin):
    """How many requests of an end's since frame `begin` were sent more than once."""
    seen, again = set(), 0
    for p in lab.wire.packets(begin, lab.wire.settled()):
        if p.source == source and (p.opcode <= 12 or p.opcode in (19, 20)):
            again += (p.qpn, p.psn) in seen
            seen.add((p.qpn, p.psn))
    return again


def lossy(lab, how, by, operation):
    """512 KiB in 32 messages, or 32 atomics, while the network impairs both directions. Writes until
    something had to be sent again; of requests for the others there are too few for that."""
    lab.connect(peal_psn=WRAP - 300, rxe_psn=WRAP - 300, timeout=14)
    before, again = lab.statistic(), 0
    lab.impair(arriving=how, leaving=how)
    try:
        for seed in range(5):
            begin = lab.wire.settled()
            if operation == "atomics":
                add_and_swap(lab, by)
            else:
                transfer(lab, by, operation, 16384, count=32, seed=seed)
            again += sent_again(lab, HOST if by == "peal" else GUEST, begin)
            if operation != "write" or again > 0:
                break
    finally:
        lab.impair()
    expect(lab.states() == ("RTS", "RTS"), f"the states are {lab.states()}")
    if operation == "write":
        expect(again > 0, "nothing was sent again")
        after = lab.statistic()
        names = {"peal": ("out_of_seq_request", "duplicate_request"),
                 "linux": ("rcvd_seq_err", "completer_retry_err")}[by]
        expect(any(after[n] > before[n] for n in names),
               f"rdma statistic shows no retransmission: {' '.join(names)}")


for HOW in ("loss 1%", "loss 5%", "loss 2% duplicate 2% delay 1ms reorder 5%"):
    for BY in ("peal", "linux"):
        for OPERATION in ("write", "read", "atomics"):
            WHO = {"peal": "Peal", "linux": "Linux"}[BY]
            WHAT = {"write": "writes 512 KiB", "read": "reads 512 KiB", "atomics": "adds once each"}
            check(f"{WHO} {WHAT[OPERATION]} at {HOW}", 90, how=HOW, by=BY,
                  operation=OPERATION)(lossy)


# ---- Wrong ICRCs --------------------------------------------------------------------------------


def write_packet(source, target, qpn, psn, address, rkey, payload, spoil):
    """A WRITE ONLY as a whole IP packet, its ICRC right or with one bit spoiled."""
    roce = (struct.pack(">BBHII", 10, 0, 0xFFFF, qpn, 1 << 31 | psn) +
            struct.pack(">QII", address, rkey, len(payload)) + payload)
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + 8 + len(roce) + 4, 4242, 0x4000, 64, 17, 0)
    ip += bytes(map(int, source.split("."))) + bytes(map(int, target.split(".")))
    udp = struct.pack(">HHHH", 49152, 4791, 8 + len(roce) + 4, 0)
    sum_of = bytearray(icrc.icrc(ip, udp, roce))
    sum_of[2] ^= 0x10 if spoil else 0
    return ip + udp + roce + bytes(sum_of)


def answers_to(lab, source, begin, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = [p for p in lab.wire.packets(begin) if p.source == source]
        if found:
            return found
        time.sleep(0.02)
    return []


def wrong_icrc(lab, sender, send, owner, info, own_psn):
    """A packet of which one bit of the ICRC is wrong does nothing; the same with the right one is
    taken and answered, which shows that nothing else was wrong with it."""
    owner.must(f"fill 0 {ALL} 3")
    payload, other = b"by a raw socket.", GUEST if sender == HOST else HOST
    before = crc(owner, 0, ALL)
    for spoil in (True, False):
        begin = lab.wire.settled()
        send(write_packet(sender, other, info["qpn"], own_psn, info["address"], info["rkey"], payload,
                          spoil))
        lab.spoiled += spoil
        found = answers_to(lab, other, begin, 0.5 if spoil else 5)
        if spoil:
            expect(not found, f"it was answered by {found and str(found[0])}")
            expect(crc(owner, 0, ALL) == before, "it has changed memory")
        else:
            expect(found and found[0].syndrome == 0x1F, "even the right one was not acknowledged")
            expect(crc(owner, 0, ALL) != before, "even the right one has changed nothing")


@check("Linux drops a packet of ours with a wrong ICRC silently")
def linux_drops_wrong_icrc(lab):
    lab.connect()

    def send(packet):
        # By the same path as Peal's, from its address. IPPROTO_RAW: the header is ours.
        with machines.raw_socket() as raw:
            raw.sendto(packet, (GUEST, 0))

    wrong_icrc(lab, HOST, send, lab.guest, lab.g, lab.p["psn"])


@check("Peal drops a packet of Linux's with a wrong ICRC silently, and counts it")
def peal_drops_wrong_icrc(lab):
    lab.connect()
    before = lab.counters()
    wrong_icrc(lab, GUEST, lambda packet: lab.guest.must(f"raw {packet.hex()}"), lab.peal, lab.p,
               lab.g["psn"])
    after = lab.counters()
    expect(after["icrc"] == before["icrc"] + 1, "it was not counted as one of a wrong ICRC")
    expect(after["dropped"] == before["dropped"] + 1, "something else was dropped too")


# ---- Silence ------------------------------------------------------------------------------------


def attempts(lab, source, begin):
    return [p.when for p in lab.wire.packets(begin, lab.wire.settled())
            if p.source == source and p.opcode <= 12]


@for_each("Linux's write to a queue pair that Peal has not ends in retry exceeded, timeout {}",
          (14, 16))
def linux_meets_silence(lab, timeout):
    retries = 3
    lab.connect(timeout=timeout, retry=retries, peal_qpn=0xABCDE)
    counters, before = lab.counters(), lab.statistic()
    begin = lab.wire.settled()
    answer = lab.guest.ask(f"write 0 64 {lab.p['address']} {lab.p['rkey']}")
    expect(not answer.ok and answer.number("status") == RETRIES_EXCEEDED,
           f"Linux says: {answer.text}")
    least = retries * 4.096e-6 * 2**timeout
    expect(float(answer["seconds"]) >= least, f"after {answer['seconds']} s, not {least:.4f} s")
    tries = attempts(lab, GUEST, begin)
    expect(len(tries) == retries + 1, f"it tried at {tries}")
    expect(not [p for p in lab.wire.packets(begin) if p.source == HOST], "Peal answered")
    expect(lab.counters()["unknown_qp"] == counters["unknown_qp"] + len(tries),
           "Peal does not count them as for no queue pair of its own")
    expect(lab.statistic()["retry_exceeded_err"] == before["retry_exceeded_err"] + 1,
           "rdma statistic counts no exceeded retries")


@for_each("Peal's write into silence ends in syndrome 0x15 when its attributes say, timeout {}",
          (14, 16))
def peal_meets_silence(lab, timeout):
    retries = 3
    lab.connect(timeout=timeout, retry=retries)
    transfer(lab, "peal", "write", 64)
    lab.impair(arriving="loss 100%")
    try:
        begin = lab.wire.settled()
        answer = lab.peal.ask(f"write 0 64 {lab.g['address']} {lab.g['rkey']}")
    finally:
        lab.impair()
    expect(not answer.ok and answer.number("syndrome") == SYNDROME_RETRIES, f"Peal says: {answer.text}")
    least = (retries + 1) * 4.096e-6 * 2**timeout
    seconds = float(answer["seconds"])
    expect(least <= seconds <= 4 * least + 2,
           f"after {seconds} s, where its attributes say {least:.4f} s")
    tries = attempts(lab, HOST, begin)
    expect(len(tries) == retries + 1, f"it tried at {tries}")
    expect(lab.states()[0] == "ERR", f"the states are {lab.states()}")


# ---- Captures -----------------------------------------------------------------------------------


@check("Peal's own capture has what was on the wire, with the right ICRCs")
def own_capture(lab):
    lab.connect()
    path = os.path.join(lab.root, "guest", "peal.pcap")
    lab.peal.must(f"capture {path}")
    begin = lab.wire.settled()
    transfer(lab, "peal", "write", 5000)
    transfer(lab, "linux", "read", 3000, seed=2)
    lab.peal.must("capture")
    on_wire = [p.ip for p in lab.wire.packets(begin, lab.wire.settled())]
    own = list(icrc.read_pcap(path))
    expect(all(icrc.is_right(packet) for packet in own), "an ICRC of its own capture is wrong")
    ends = {socket.inet_aton(end) for end in (HOST, GUEST)}
    for source in ends:  # how the two directions interleave depends on where one looks
        seen, kept = ([icrc.parts(packet)[2] for packet in packets if packet[12:16] == source]
                      for packets in (on_wire, own))
        expect(seen and seen == kept, f"it has {len(kept)} of {len(seen)} packets, or others")



@check("every packet on the wire has the right ICRC, but the two that were spoiled")
def all_icrcs(lab):
    packets = lab.wire.packets(0, lab.wire.settled())
    wrong = [p for p in packets if not icrc.is_right(p.ip)]
    expect(packets, "there is no packet")
    expect(len(wrong) == lab.spoiled, f"{len(wrong)} are wrong, the first {wrong and str(wrong[0])}")
    print(f"   {len(packets)} packets")


@check("tshark reads the same fields of every packet", 90)
def all_fields(lab):
    packets = lab.wire.packets(0, lab.wire.settled())
    rows = capture.by_tshark(lab.root, lab.wire.pcap())
    expect(len(rows) == len(packets), f"tshark sees {len(rows)} of {len(packets)} packets")
    for p in packets:
        ours = (p.frame, p.source, p.opcode, p.qpn, p.psn, p.asks, p.pad, p.address, p.rkey, p.length,
                None if p.syndrome is None else p.syndrome >> 5 & 3, p.msn,
                int.from_bytes(p.icrc_bytes, "big"))
        theirs = tuple(rows[p.frame].values())
        expect(ours == theirs, f"frame {p.frame} is {ours}, but to tshark {theirs}")


# -------------------------------------------------------------------------------------------------


def ring(*_):
    raise TooLong


def run_checks(lab, only):
    failures = ran = 0
    signal.signal(signal.SIGALRM, ring)
    for name, seconds, function in CHECKS:
        if only not in name:
            continue
        ran += 1
        why = None
        begin = lab.wire.settled()
        signal.alarm(seconds)
        try:
            function(lab)
        except (Failed, Broken) as error:
            why = str(error)
        except TooLong:
            why = f"it did not end within {seconds} s"
        finally:
            signal.alarm(0)
        failures += why is not None
        print(f"ok {name}" if why is None else f"FAILED {name}: {why}", flush=True)
        if why is not None:
            for packet in lab.wire.packets(begin, lab.wire.settled())[-SHOWN_PACKETS:]:
                print(f"   {packet}")
        if why is not None and (lab.guest.process.poll() is not None or
                                lab.peal.process.poll() is not None):
            print("FAILED all others: an end is gone")
            break
    print(f"{ran - failures} of {ran} checks hold")
    return failures == 0 and ran != 0


def main():
    options = argparse.ArgumentParser()
    options.add_argument("folder")
    options.add_argument("peer")
    options.add_argument("--only", default="")
    options.add_argument("--shell", action="store_true")
    o = options.parse_args()
    root = os.path.join(o.folder, "root")
    if o.shell:
        tap = machines.make_tap(LINK_MTU, functools.partial(run_ip, root))
        return machines.boot_with_shell(root, tap, LINK_MTU)
    try:
        lab = Lab(root, o.peer)
    except machines.Broken as error:
        print(f"interop: {error}", flush=True)
        return 1
    try:
        print(f"Peal against rdma_rxe of Linux {lab.kernel}, MTU up to {lab.peal_mtu}", flush=True)
        return 0 if run_checks(lab, o.only) else 1
    finally:
        lab.end()
        with open(os.path.join(o.folder, "wire.pcap"), "wb") as file:
            file.write(lab.wire.pcap())


if __name__ == "__main__":
    sys.exit(main())
