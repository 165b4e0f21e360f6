#!/bin/bash
# SPDX-License-Identifier: MIT
# Installs into an empty root, twice, looks at every file and mode, and uninstalls.
# usage: run.sh MAKE BUILD-DIRECTORY
set -euo pipefail
cd "$(dirname "$0")/../.."
make=$1
build=$2
root=$(mktemp -d "${TMPDIR:-/tmp}/inboxd-install.XXXXXX")
trap 'rm -rf "$root"' EXIT
failed=0

fail() {
	echo "check-install: $*" >&2
	failed=1
}

# The places of a make without any setting, so that nothing is compiled anew.
run_make() {
	env -u MAKEFLAGS -u MAKELEVEL "$make" --no-print-directory B="$build" DESTDIR="$root" "$@" >"$root.log" 2>&1 || {
		cat "$root.log" >&2
		exit 1
	}
	rm -f "$root.log"
}

# listing: kind, mode and path of everything, sorted.
listing() {
	(cd "$root" && find . -mindepth 1 -printf '%y %m %P\n' | sort -k3)
}

expected() {
	local file
	cat <<-'END'
		d 755 etc
		d 755 etc/inboxd
		d 755 etc/inboxd/conf.d
		f 644 etc/inboxd/inboxd.yaml
		d 755 usr
		d 755 usr/local
		d 755 usr/local/bin
		f 755 usr/local/bin/inboxctl
		d 755 usr/local/include
		d 755 usr/local/include/inboxd
		d 755 usr/local/lib
		d 755 usr/local/lib/inboxd
		d 755 usr/local/lib/inboxd/handlers
		f 644 usr/local/lib/inboxd/handlers/sql.so
		d 755 usr/local/lib/pkgconfig
		f 644 usr/local/lib/pkgconfig/inboxd.pc
		d 755 usr/local/lib/systemd
		d 755 usr/local/lib/systemd/system
		f 644 usr/local/lib/systemd/system/inboxd.service
		f 644 usr/local/lib/systemd/system/inboxd@.service
		d 755 usr/local/lib/sysusers.d
		f 644 usr/local/lib/sysusers.d/inboxd.conf
		d 755 usr/local/lib/tmpfiles.d
		f 644 usr/local/lib/tmpfiles.d/inboxd.conf
		d 755 usr/local/sbin
		f 755 usr/local/sbin/inboxd
		d 755 usr/local/share
		d 755 usr/local/share/doc
		d 755 usr/local/share/doc/inboxd
		d 755 usr/local/share/doc/inboxd/examples
		f 644 usr/local/share/doc/inboxd/CHANGELOG.md
		f 644 usr/local/share/doc/inboxd/LICENSE
		f 644 usr/local/share/doc/inboxd/README.md
		d 755 usr/local/share/man
	END
	for file in src/handler/inboxd/*.h; do
		echo "f 644 usr/local/include/inboxd/${file##*/}"
	done
	for file in src/handlers/*.c src/handlers/*.sql; do
		[ "$file" = src/handlers/sql.c ] || echo "f 644 usr/local/share/doc/inboxd/examples/${file##*/}"
	done
	for file in conf/man/*.[1-9]; do
		echo "f 644 usr/local/share/man/man${file##*.}/${file##*/}"
	done
	for file in conf/man/*.[1-9]; do
		echo "d 755 usr/local/share/man/man${file##*.}"
	done | sort -u
}

# Under a umask that hides everything: modes are ours, not the user's.
(
	umask 077
	run_make install
)
diff <(expected | sort -k3) <(listing) || fail "install puts other files or modes than expected (< expected, > found)"

grep -q '^ExecStart=/usr/local/sbin/inboxd --config /etc/inboxd/inboxd.yaml$' \
	"$root/usr/local/lib/systemd/system/inboxd.service" || fail "the unit does not start what was installed"
if grep -rnE '@[A-Z]+@' "$root/usr/local/lib/pkgconfig" "$root/usr/local/lib/systemd"; then
	fail "a place was left open"
fi
version=$(PKG_CONFIG_PATH="$root/usr/local/lib/pkgconfig" pkg-config --modversion inboxd)
"$root/usr/local/sbin/inboxd" --version | grep -qF "$version" || fail "inboxd.pc says $version, inboxd --version does not"
[ "$(PKG_CONFIG_PATH="$root/usr/local/lib/pkgconfig" pkg-config --variable=handlerdir inboxd)" = \
	/usr/local/lib/inboxd/handlers ] || fail "inboxd.pc names another handlerdir"

# Again, over an edited configuration and a handler of the user's.
echo "# edited" >>"$root/etc/inboxd/inboxd.yaml"
touch "$root/usr/local/lib/inboxd/handlers/own.so" "$root/etc/inboxd/conf.d/own.yaml"
cp "$root/etc/inboxd/inboxd.yaml" "$root.yaml"
run_make install
cmp "$root.yaml" "$root/etc/inboxd/inboxd.yaml" || fail "install overwrote an edited configuration"
rm -f "$root.yaml"

run_make uninstall
left=$(cd "$root" && find . -type f | sort | tr '\n' ' ')
[ "$left" = "./etc/inboxd/conf.d/own.yaml ./etc/inboxd/inboxd.yaml ./usr/local/lib/inboxd/handlers/own.so " ] ||
	fail "uninstall left: $left"

# Other places reach every file that names one.
env -u MAKEFLAGS "$make" -n B="$root/build" DESTDIR="$root" PREFIX=/opt/inboxd SYSCONFDIR=/opt/etc install |
	grep -F '/usr/local' && fail "PREFIX does not move everything"

# Every target and every variable that may be set is in the help.
help=$(env -u MAKEFLAGS "$make" --no-print-directory help)
for name in $(sed -n 's/^\.PHONY: //p' Makefile) $(sed -n 's/^\([A-Z_]*\) ?=.*/\1/p' Makefile); do
	grep -qw -e "$name" <<<"$help" || fail "make help says nothing about $name"
done

[ "$failed" = 0 ] && echo "check-install: ok"
exit "$failed"
