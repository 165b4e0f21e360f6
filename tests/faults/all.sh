#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What tests/integration/run.sh runs for `make check-faults`: the two halves of the grid side by side, then,
# one after the other, what takes the servers themselves away.  Ends with a table and the sums.
#
#   tests/faults/all.sh [SUITE...]     these alone, one after the other
set -u
program=$INBOXD_TEST_BUILD/tests/faults
logs=$INBOXD_TEST_BUILD/faults-log
rm -rf "$logs" && mkdir -p "$logs"

running=()
# shellcheck disable=SC2317 # called by the trap
stop() {
	[ ${#running[@]} -eq 0 ] || kill -TERM "${running[@]}" 2>/dev/null
	wait
	exit 143
}
trap stop INT TERM HUP

begin() {
	"$program" "$1" >"$logs/${1//\//-}" 2>&1 &
	running+=($!)
}
finish() {
	local suite
	[ ${#running[@]} -eq 0 ] || wait "${running[@]}"
	running=()
	for suite in "$@"; do
		cat "$logs/${suite//\//-}"
	done
}

if [ $# -gt 0 ]; then
	for suite in "$@"; do
		begin "$suite"
		finish "$suite"
	done
else
	begin faults/grid/kill
	begin faults/grid/cut
	finish faults/grid/kill faults/grid/cut
	for suite in faults/absent faults/kills faults/away faults/random faults/control; do
		begin "$suite"
		finish "$suite"
	done
fi

checks=0 failures=0 errors=0
for log in "$logs"/*; do
	read -r c f e < <(sed -nE 's/^[0-9]+%: Checks: ([0-9]+), Failures: ([0-9]+), Errors: ([0-9]+)$/\1 \2 \3/p' "$log" |
		tail -n 1)
	# One that did not come to its end is an error.
	checks=$((checks + ${c:-1})) failures=$((failures + ${f:-0})) errors=$((errors + ${e:-1}))
done
echo
sed -n 's/^faults: //p' "$logs"/*
printf '%d%%: Checks: %d, Failures: %d, Errors: %d\n' $(((checks - failures - errors) * 100 / checks)) \
	"$checks" "$failures" "$errors"
[ $((failures + errors)) -eq 0 ]
