"""The two ends of the interop tests, each a program that answers lines, and the tap between them."""
import fcntl
import os
import re
import select
import socket
import struct
import subprocess
import time

HOST = "10.99.0.1"
GUEST = "10.99.0.2"
TAP = "tap0"
HOST_MAC = "52:54:00:99:00:01"
GUEST_MAC = "52:54:00:99:00:02"


class Broken(Exception):
    """An end that does not answer, or ended."""


class Answer(dict):
    """Of one line that an end was told: the words NAME=VALUE of its last line; .ok, .text, .before."""

    def __init__(self, lines):
        super().__init__(re.findall(r"(\w+)=(\S+)", lines[-1]))
        self.text = lines[-1]
        self.before = lines[:-1]
        self.ok = self.text.startswith("ok")

    def number(self, name):
        return int(self[name], 0)


class End:
    """A process that is told what to do line by line, and answers each with lines of which the last
    begins with "ok" or "failed"."""

    def __init__(self, name, command, pass_fds=()):
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        pass_fds=pass_fds)
        self.arrived = b""
        self.owed = 1  # answers: the first is to nothing that it was told

    def tell(self, line):
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
            self.owed += 1
        except OSError as error:
            raise Broken(f"{self.name} is gone ({error.strerror}) at: {line}") from error

    def answer(self, seconds=90):
        lines = []
        end = time.monotonic() + seconds
        while True:
            while b"\n" in self.arrived:
                line, self.arrived = self.arrived.split(b"\n", 1)
                lines.append(line.decode(errors="replace").rstrip("\r"))
                if lines[-1].startswith(("ok", "failed")):
                    self.owed -= 1
                    return Answer(lines)
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise Broken(f"{self.name} does not answer within {seconds} s")
            part = os.read(self.process.stdout.fileno(), 65536)
            if not part:
                raise Broken(f"{self.name} ended, having said: {b' '.join([self.arrived])!r}")
            self.arrived += part

    def ask(self, line, seconds=90):
        while self.owed > 0:  # to a check that did not wait for it
            self.answer(seconds)
        self.tell(line)
        return self.answer(seconds)

    def must(self, line, seconds=90):
        answer = self.ask(line, seconds)
        if not answer.ok:
            raise Broken(f"{self.name}, told `{line[:100]}`: {answer.text}")
        return answer

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)


def make_tap(mtu, ip):
    """Creates the tap device with HOST's address, and returns its descriptor. `ip` runs iproute2's."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR)
    ifreq = struct.pack("16sH22x", TAP.encode(), 0x0002 | 0x1000)  # IFF_TAP | IFF_NO_PI
    fcntl.ioctl(descriptor, 0x400454CA, ifreq)  # TUNSETIFF
    with open(f"/proc/sys/net/ipv6/conf/{TAP}/disable_ipv6", "w", encoding="ascii") as setting:
        setting.write("1")
    ip("link", "set", "lo", "up")
    ip("addr", "add", f"{HOST}/24", "dev", TAP)
    ip("link", "set", TAP, "address", HOST_MAC, "mtu", str(mtu), "up")
    # No ARP: it would be lost with the packets that a check loses.
    ip("neigh", "add", GUEST, "lladdr", GUEST_MAC, "nud", "permanent", "dev", TAP)
    return descriptor


def raw_socket():
    """For whole IP packets."""
    return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)


def qemu(root, tap, mtu, serial, more=""):
    """The command that boots the guest."""
    return ["chroot", root, "/usr/bin/qemu-system-x86_64", "-M", "pc", "-accel",
            "tcg,thread=multi,tb-size=128", "-cpu", "max", "-smp", "1", "-m", "320", "-nodefaults",
            "-no-reboot", "-display", "none", *serial, "-kernel", "/guest/vmlinux", "-initrd",
            "/guest/initrd", "-netdev", f"tap,id=n0,fd={tap}", "-device",
            f"virtio-net-pci,netdev=n0,mac={GUEST_MAC},romfile=", "-append",
            "console=ttyS0 quiet panic=-1 rdinit=/init mitigations=off nokaslr cryptomgr.notests=1 "
            f"guest.address={GUEST} guest.host={HOST} guest.host_mac={HOST_MAC} guest.mtu={mtu} {more}"]


def boot(root, tap, mtu):
    """Starts the guest, whose console goes to ROOT/guest/console, and returns it with its kernel's
    version once it has come up."""
    serial = ["-serial", "file:/guest/console", "-serial", "stdio"]
    guest = End("the guest", qemu(root, tap, mtu, serial), pass_fds=(tap,))
    try:
        return guest, guest.answer(180)["kernel"]
    except BaseException:
        guest.end()
        print(f"the guest did not come up; QEMU's status is {guest.process.returncode}, and its console "
              f"{root}/guest/console", flush=True)
        raise


def boot_with_shell(root, tap, mtu):
    """Runs the guest with a shell on this terminal, until it ends."""
    serial = ["-serial", "mon:stdio"]
    return subprocess.run(qemu(root, tap, mtu, serial, "guest.shell"), pass_fds=(tap,),
                          check=False).returncode
