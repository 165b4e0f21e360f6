#!/bin/bash
# SPDX-License-Identifier: MIT
# The units are valid, as locked down as we say, and the instance is the same service once more.
# usage: run.sh BUILD-DIRECTORY
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "$1")
work=$(mktemp -d "${TMPDIR:-/tmp}/inboxd-systemd.XXXXXX")
trap 'rm -rf "$work"' EXIT
failed=0

fail() {
	echo "check-systemd: $*" >&2
	failed=1
}

# verify wants the program to exist: the one that was just built stands in for the installed one.
for unit in inboxd.service inboxd@.service; do
	sed "s|/usr/sbin/inboxd|$build/inboxd|" "systemd/$unit" >"$work/$unit"
done
for unit in inboxd.service inboxd@pay.service; do
	systemd-analyze verify --man=no "$work/$unit" >"$work/log" 2>&1 || fail "$unit is not valid"
	# Lines about units of the system are not ours to mend.
	if grep -F inboxd "$work/log"; then
		fail "systemd-analyze verify has something to say about $unit"
	fi
done

for unit in inboxd.service inboxd@.service; do
	score=$(systemd-analyze security --offline=true "systemd/$unit" |
		sed -n 's/.*Overall exposure level for .*: \([0-9.]*\) .*/\1/p')
	awk -v score="${score:-10}" 'BEGIN { exit !(score <= 1.5) }' ||
		fail "exposure of $unit is ${score:-unknown}, more than 1.5"
	echo "exposure of $unit: $score"
done

# Comments aside, the instance differs in its name and its places only.
sed -e 's| (%i)||' -e 's|/%i/|/|' -e 's|-%i||' -e 's|inboxd/%i|inboxd|' systemd/inboxd@.service |
	grep -v '^#' >"$work/instance"
grep -v '^#' systemd/inboxd.service | diff - "$work/instance" || fail "inboxd@.service is another service"

[ "$failed" = 0 ] && echo "check-systemd: ok"
exit "$failed"
