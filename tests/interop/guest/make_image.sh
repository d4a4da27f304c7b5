#!/bin/bash
# make_image.sh FOLDER: makes in FOLDER/root what the interop tests run: QEMU, iproute2 and tshark,
# and in its folder /guest a kernel and an initrd for a guest with Soft-RoCE. All comes from this
# system's Debian mirrors and is unpacked only: nothing is installed, and all of it is run by chroot.
# What is there already stays. Needs root, gcc and python3.
# Exit status: 0 made, 5 not.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 5
[ $# -eq 1 ] || {
  echo "make_image.sh: it takes the folder to make the image in." >&2
  exit 2
}
mkdir -p "$1" && folder=$(cd "$1" && pwd) || exit 5
root=$folder/root

packages=(linux-image-amd64 qemu-system-x86 tshark iproute2 kmod busybox-static cpio
  ibverbs-providers libibverbs-dev)
# Below its /lib/modules/VERSION/kernel, what the guest's init loads and what that needs.
modules=(drivers/infiniband/core drivers/infiniband/sw/rxe drivers/virtio drivers/net/virtio_net.ko
  drivers/net/net_failover.ko drivers/net/ifb.ko net/core/failover.ko net/ipv4/udp_tunnel.ko
  net/ipv6/ip6_udp_tunnel.ko net/sched crypto arch/x86/crypto)
# In the initrd, with the libraries that they load.
programs=(/sbin/tc /usr/bin/rdma /guest/guest_peer
  /usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so)

stop() {
  echo "make_image.sh: $*" >&2
  exit 5
}

# As if nothing were installed, so that every library comes along and none of this system's is used.
download() {
  mkdir -p "$folder/packages/partial" || return 1
  : >"$folder/no_packages" || return 1
  timeout 300 apt-get install --download-only -y -q --no-install-recommends \
    -o Dir::State::status="$folder/no_packages" -o Dir::Cache::archives="$folder/packages" \
    -o APT::Sandbox::User= -o Acquire::Retries=2 -o Debug::NoLocking=true "${packages[@]}"
}

unpack() {
  local package
  case $1 in
    */linux-image-[0-9]*)
      local path paths=()
      for path in "${modules[@]}"; do
        paths+=("./lib/modules/*/kernel/$path" "./lib/modules/*/kernel/$path.xz")
      done
      # tar fails for the names of which there is but one of the two.
      dpkg-deb --fsys-tarfile "$1" | tar -x -C "$root.new" --wildcards './boot/vmlinuz-*' \
        './lib/modules/*/modules.builtin*' './lib/modules/*/modules.order' "${paths[@]}" 2>/dev/null
      [ -n "$(find "$root.new/lib/modules" -name 'rdma_rxe.ko*' 2>/dev/null)" ]
      ;;
    *)
      dpkg-deb --fsys-tarfile "$1" | tar -x -C "$root.new" --exclude='./usr/share/doc' \
        --exclude='./usr/share/man' --exclude='./usr/share/locale' --exclude='./usr/share/iso-codes' \
        --exclude='./usr/share/gtk-doc'
      ;;
  esac
}

# The kernel as it is once in memory, so that no emulated processor has to unpack it.
extract_kernel() {
  python3 - "$1" "$2" <<'PYTHON'
import lzma
import sys

packed = open(sys.argv[1], "rb").read()
kernel = lzma.LZMADecompressor().decompress(packed[packed.index(b"\xfd7zXZ\0"):])
assert kernel.startswith(b"\x7fELF")
open(sys.argv[2], "wb").write(kernel)
PYTHON
}

make_root() {
  if ! download; then
    echo "make_image.sh: once more, with new lists of packages"
    timeout 120 apt-get update -q || return 1
    download || return 1
  fi
  rm -rf "$root.new" && mkdir -p "$root.new/guest" || return 1
  local package
  for package in "$folder"/packages/*.deb; do
    unpack "$package" || {
      echo "make_image.sh: $package cannot be unpacked." >&2
      return 1
    }
  done
  extract_kernel "$root.new/boot"/vmlinuz-* "$root.new/guest/vmlinux" || return 1
  chroot "$root.new" /sbin/depmod "$(ls "$root.new/lib/modules")" || return 1
  rm -rf "$folder/packages"
  rm -rf "$root" && mv "$root.new" "$root"
}

make_initrd() {
  local tree=$root/guest/tree program library
  rm -rf "$tree" && mkdir -p "$tree"/{bin,sbin,usr/bin,usr/sbin,etc,tmp} || return 1
  gcc -std=gnu11 -O2 -Wall -Wextra -Werror -isystem "$root/usr/include" -o "$root/guest/guest_peer" \
    "$here/guest_peer.c" "$root/usr/lib/x86_64-linux-gnu/libibverbs.so.1" \
    -Wl,-rpath-link,"$root/usr/lib/x86_64-linux-gnu" || return 1
  for program in "${programs[@]}"; do
    { echo "$program" && chroot "$root" /lib64/ld-linux-x86-64.so.2 --list "$program" |
      awk '/ => \//{print $3}'; } || return 1
  done | sort -u >"$root/guest/files" || return 1
  { cat "$root/guest/files" && echo /lib64/ld-linux-x86-64.so.2 && echo /etc/libibverbs.d/rxe.driver; } |
    while read -r library; do
      mkdir -p "$tree$(dirname "$library")" && cp -L "$root$library" "$tree$library" || exit 1
    done || return 1
  cp "$root/bin/busybox" "$tree/bin/" && cp -r "$root/lib/modules" "$tree/lib/" &&
    mv "$tree/guest/guest_peer" "$tree/bin/" && cp "$here/init" "$tree/init" &&
    chmod +x "$tree/init" || return 1
  chroot "$root" /bin/busybox sh -c 'cd /guest/tree && find . | /bin/cpio -o -H newc --quiet' \
    >"$root/guest/initrd.new" && mv "$root/guest/initrd.new" "$root/guest/initrd"
}

[ -f "$root/guest/vmlinux" ] || make_root || stop "the packages for the guest cannot be had."
[ "$root/guest/initrd" -nt "$here/guest_peer.c" ] && [ "$root/guest/initrd" -nt "$here/init" ] &&
  [ "$root/guest/initrd" -nt "$here/make_image.sh" ] || make_initrd ||
  stop "the guest's initrd cannot be made."
