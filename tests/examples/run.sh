#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Builds handlers the way their authors do: against the installed header and inboxd.pc alone, outside the
# tree; looks at what came out, and has the installed inboxd load it.
# usage: run.sh MAKE BUILD-DIRECTORY
set -euo pipefail
cd "$(dirname "$0")/../.."
make=$1
build=$2
root=$(mktemp -d "${TMPDIR:-/tmp}/inboxd-examples.XXXXXX")
trap 'rm -rf "$root"' EXIT
project=$root/project
failed=0

fail() {
	echo "check-examples: $*" >&2
	failed=1
}

quietly() {
	"$@" >"$root/log" 2>&1 || {
		cat "$root/log" >&2
		exit 1
	}
}

quietly env -u MAKEFLAGS -u MAKELEVEL "$make" --no-print-directory B="$build" DESTDIR="$root" install

# The examples as they were installed, and the smallest one.
mkdir "$project"
cp tests/examples/Makefile tests/examples/*.c "$project"
cp "$root"/usr/local/share/doc/inboxd/examples/*.c "$project"
export PKG_CONFIG_PATH=$root/usr/local/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
quietly env -u MAKEFLAGS -u MAKELEVEL "$make" --no-print-directory -C "$project" all check

for handler in orders ledger bulk; do
	so=$project/$handler.so
	[ -f "$so" ] || {
		fail "$handler.so was not built"
		continue
	}
	exported=$(nm -D --defined-only "$so" | awk '{print $3}')
	[ "$exported" = inboxd_handler ] || fail "$handler.so exports: $exported"
	if nm -D --undefined-only "$so" | grep inboxd; then
		fail "$handler.so needs symbols of inboxd"
	fi
	needed=$(readelf -d "$so" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p')
	[ "${needed:-libc.so.6}" = libc.so.6 ] || fail "$handler.so is linked with: $needed"
done

# The installed inboxd loads them and runs their check.
cat >"$root/inboxd.yaml" <<-END
	broker: {uri: amqp://localhost}
	database: {conninfo: dbname=shop}
	handlers: {directory: [$project, $root/usr/local/lib/inboxd/handlers]}
	consumers:
	  orders: {queue: orders, handler: orders}
	  ledger: {queue: ledger, handler: ledger, options: {limit: 100}}
	  bulk: {queue: bulk, handler: bulk}
	  sql: {queue: sql, handler: sql, options: {statement: "INSERT INTO t VALUES (\$1)"}}
END
quietly "$root/usr/local/sbin/inboxd" --config "$root/inboxd.yaml" --check
sed 's/limit: 100/limit: much/' "$root/inboxd.yaml" >"$root/wrong.yaml"
"$root/usr/local/sbin/inboxd" --config "$root/wrong.yaml" --check >"$root/log" 2>&1 && fail "a wrong option passes --check"
grep -q 'wrong.yaml:6:.*limit is a number above 0' "$root/log" || fail "the wrong option is not told: $(cat "$root/log")"
sed 's|uri: amqp://localhost|uri: [amqp://a/shop, amqp://b/shop, amqp://c/other]|' "$root/inboxd.yaml" >"$root/wrong.yaml"
"$root/usr/local/sbin/inboxd" --config "$root/wrong.yaml" --check >"$root/log" 2>&1 && fail "two virtual hosts pass --check"
grep -q 'wrong.yaml:1:.*another virtual host' "$root/log" || fail "the virtual host is not told: $(cat "$root/log")"

[ "$failed" = 0 ] && echo "check-examples: ok"
exit "$failed"
