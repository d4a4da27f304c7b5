#!/bin/bash
# Makes the Debian package of a build, looks at what is in it, and runs the command out of a scratch
# root. Exits with 5 where dpkg's tools are missing. Leaves the package in BUILD.
# Usage: deb_test.sh BUILD
set -eu
build=$1
scratch=$build/tests/package/deb
fail() {
  printf '%s\n' "$*" >&2
  exit 1
}
for program in dpkg-deb dpkg-shlibdeps; do
  command -v "$program" >/dev/null || {
    echo "no $program here, so that no package was made"
    exit 5
  }
done

rm -rf "$scratch"
mkdir -p "$scratch"
(cd "$build" && cpack -G DEB -B "$scratch") >"$scratch/cpack.log" 2>&1 ||
  fail "cpack failed: $(cat "$scratch/cpack.log")"
rm -rf "$scratch/_CPack_Packages"
packages=("$scratch"/*.deb)
[[ ${#packages[@]} -eq 1 && -f ${packages[0]} ]] || fail "cpack made ${packages[*]}"
package=${packages[0]}

dpkg-deb --info "$package"
for field in Package Version Architecture Maintainer Section Description; do
  [ -n "$(dpkg-deb --field "$package" "$field")" ] || fail "the package has no $field"
done
dpkg-deb --field "$package" Depends | grep -qE '(^|, )libc6 \(>= ' ||
  fail "the package does not depend on what the command links to"

root=$scratch/root
dpkg -x "$package" "$root"
shopt -s globstar
for path in bin/peal include/peal/device/put.hpp include/peal/host/context.hpp \
  'lib/**/libpeal_host.a' 'lib/**/libpeal_nic.a' 'lib/**/cmake/peal/peal-config.cmake' \
  'lib/**/pkgconfig/peal.pc' share/man/man1/peal.1 share/bash-completion/completions/peal \
  share/doc/peal/README.md; do
  compgen -G "$root/usr/$path" >/dev/null || fail "the package lacks /usr/$path"
done
[ "$(find "$root" -mindepth 1 -maxdepth 1)" = "$root/usr" ] ||
  fail "the package has files outside of /usr"

version=$("$root/usr/bin/peal" --version)
[ "${version%% *}" = "$(dpkg-deb --field "$package" Version)" ] ||
  fail "the command in the package is $version"
"$root/usr/bin/peal" ladder --stages serial,window --size 4096 --iters 64 --repeat 1 --region 1M
mv "$package" "$build"
echo "made $build/${package##*/}"
