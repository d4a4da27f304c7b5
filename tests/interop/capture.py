"""All that goes over the tap between the two ends, and what it means: read here, and by tshark."""
import fcntl
import select
import socket
import struct
import subprocess
import threading
import time

import icrc

FIONREAD = 0x541B
HAS_RETH = {6, 10, 11, 12}
HAS_AETH = {13, 15, 16, 17, 18}
HAS_ATOMIC_ETH = {19, 20}

# What tshark calls the fields that it is asked for, and how its text becomes a number.
TSHARK_FIELDS = ("frame.number", "ip.src", "infiniband.bth.opcode", "infiniband.bth.destqp",
                 "infiniband.bth.psn", "infiniband.bth.a", "infiniband.bth.padcnt",
                 "infiniband.reth.va", "infiniband.reth.r_key", "infiniband.reth.dmalen",
                 "infiniband.aeth.syndrome.opcode", "infiniband.aeth.msn",
                 "infiniband.invariant.crc")


class Packet:
    """A RoCEv2 packet."""

    def __init__(self, frame, when, ip_packet):
        self.frame, self.when, self.ip = frame, when, ip_packet
        header, _, roce = icrc.parts(ip_packet)
        self.source = socket.inet_ntoa(header[12:16])
        self.opcode, self.pad = roce[0], roce[1] >> 4 & 3
        self.qpn = int.from_bytes(roce[5:8], "big")
        self.asks = roce[8] >> 7
        self.psn = int.from_bytes(roce[9:12], "big")
        self.icrc_bytes = roce[-4:]
        body = roce[12:-4]
        self.address = self.rkey = self.length = self.syndrome = self.msn = None
        if self.opcode in HAS_RETH:
            self.address, self.rkey, self.length = struct.unpack_from(">QII", body)
            body = body[16:]
        elif self.opcode in HAS_AETH:
            self.syndrome, self.msn = body[0], int.from_bytes(body[1:4], "big")
            body = body[4:]
        elif self.opcode in HAS_ATOMIC_ETH:
            self.address, self.rkey = struct.unpack_from(">QI", body)
            body = body[28:]
        if self.opcode in (9, 11):
            body = body[4:]
        self.payload_bytes = len(body) - self.pad if self.opcode not in (17, 18) else 0

    def __str__(self):
        more = ""
        if self.length is not None:
            more += f" va={self.address:#x} rkey={self.rkey:#x} length={self.length}"
        if self.syndrome is not None:
            more += f" syndrome={self.syndrome:#x} msn={self.msn}"
        return (f"{self.when:.4f} {self.source} opcode={self.opcode} qpn={self.qpn:#x} psn={self.psn}"
                f" a={self.asks} bytes={self.payload_bytes}{more}")


class Capture:
    """Collects frames on a thread of its own until end()."""

    def __init__(self, interface):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))  # all
        self.socket.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
        self.socket.bind((interface, 0))
        self.lock = threading.Lock()  # held from a frame's leaving the socket until it is in frames
        self.frames = []
        self.ended = False
        self.begin = time.monotonic()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        while not self.ended:
            if not select.select([self.socket], [], [], 0.1)[0]:
                continue
            with self.lock:
                try:
                    frame = self.socket.recv(65536)
                except OSError:  # the guest has ended, and the tap with it
                    return
                self.frames.append((time.monotonic() - self.begin, time.time(), frame))

    def end(self):
        self.ended = True
        self.thread.join()

    def settled(self):
        """How many frames there are, with all that have passed so far."""
        while True:
            with self.lock:
                waiting = struct.unpack("i", fcntl.ioctl(self.socket, FIONREAD, bytes(4)))[0]
                if waiting == 0 or not self.thread.is_alive():
                    return len(self.frames)
            time.sleep(0.001)

    def packets(self, begin=0, end=None):
        found = []
        for place, (when, _, frame) in enumerate(self.frames[begin:end], begin):
            if frame[12:14] == b"\x08\x00" and icrc.parts(frame[14:]) is not None:
                found.append(Packet(place + 1, when, frame[14:]))
        return found

    def pcap(self):
        out = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65536, 1)]
        for _, when, frame in self.frames:
            out.append(struct.pack("<IIII", int(when), int(when % 1 * 1e6), len(frame), len(frame)))
            out.append(frame)
        return b"".join(out)


def number(text):
    return int(text, 0) if text not in ("", "True", "False") else {"True": 1, "False": 0}.get(text)


def by_tshark(root, pcap):
    """{frame number: {field: number or None}} of all RoCEv2 packets of a capture."""
    command = ["chroot", root, "/usr/bin/tshark", "-n", "-r", "-", "-Y", "infiniband", "-T", "fields",
               "-E", "separator=|"]
    for field in TSHARK_FIELDS:
        command += ["-e", field]
    run = subprocess.run(command, input=pcap, capture_output=True, timeout=60, check=False)
    if run.returncode != 0:
        raise ValueError(f"tshark ends with {run.returncode}: {run.stderr.decode()[-300:]}")
    rows = {}
    for line in run.stdout.decode().splitlines():
        values = line.split("|")
        row = dict(zip(TSHARK_FIELDS, values))
        rows[int(values[0])] = {name: value if name == "ip.src" else number(value)
                                for name, value in row.items()}
    return rows
