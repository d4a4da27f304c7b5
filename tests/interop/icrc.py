#!/usr/bin/env python3
"""The ICRC of RoCEv2 packets by nothing but zlib's crc32, so that it shares no code with what it
checks. icrc.py FILE.pcap...: checks every RoCEv2 packet of the captures; exits with 1 where one is
wrong or there is none."""
import struct
import sys
import zlib

UDP_PORT = 4791


def icrc(ip, udp, roce):
    """Of an IP header, a UDP header and what follows up to the ICRC: its four bytes on the wire."""
    ip, udp, roce = bytearray(ip), bytearray(udp), bytearray(roce)
    if ip[0] >> 4 == 4:
        ip[1] = ip[8] = 0xFF  # TOS, TTL
        ip[10:12] = b"\xff\xff"  # header checksum
    else:
        ip[0] |= 0x0F  # traffic class, flow label
        ip[1:4] = b"\xff\xff\xff"
        ip[7] = 0xFF  # hop limit
    udp[6:8] = b"\xff\xff"
    roce[4] = 0xFF
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + bytes(ip + udp + roce)))


def parts(packet):
    """(IP header, UDP header, RoCE packet with its ICRC) of an IP packet; None where it is no other
    than RoCEv2."""
    if len(packet) < 28:
        return None
    if packet[0] >> 4 == 4:
        begin, end, protocol = (packet[0] & 15) * 4, struct.unpack_from(">H", packet, 2)[0], packet[9]
    else:
        begin, end, protocol = 40, 40 + struct.unpack_from(">H", packet, 4)[0], packet[6]
    if protocol != 17 or len(packet) < begin + 8 + 12 + 4:
        return None
    if struct.unpack_from(">H", packet, begin + 2)[0] != UDP_PORT:
        return None
    return packet[:begin], packet[begin:begin + 8], packet[begin + 8:end]


def is_right(packet):
    """Whether a RoCEv2 packet's ICRC is."""
    ip, udp, roce = parts(packet)
    return icrc(ip, udp, roce[:-4]) == roce[-4:]


def read_pcap(path):
    """The IP packets of a capture of Ethernet or of raw IP."""
    with open(path, "rb") as file:
        data = file.read()
    magic, link_type = struct.unpack_from("<I", data)[0], struct.unpack_from("<I", data, 20)[0]
    if magic not in (0xA1B2C3D4, 0xA1B23C4D) or link_type not in (1, 101):
        raise ValueError(f"{path} is no capture of Ethernet or IP")
    place = 24
    while place < len(data):
        size = struct.unpack_from("<I", data, place + 8)[0]
        frame = data[place + 16:place + 16 + size]
        place += 16 + size
        if link_type == 101:
            yield frame
        elif frame[12:14] in (b"\x08\x00", b"\x86\xdd"):
            yield frame[14:]


def main(paths):
    wrong = checked = 0
    for path in paths:
        for place, packet in enumerate(read_pcap(path), 1):
            if parts(packet) is None:
                continue
            checked += 1
            if not is_right(packet):
                wrong += 1
                print(f"{path}: packet {place}: the ICRC is wrong")
    print(f"{checked} packets, {wrong} wrong")
    return 1 if wrong or not checked else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
