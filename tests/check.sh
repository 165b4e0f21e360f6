#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs the parts of `make check` one after the other, whatever becomes of each, and ends with what failed
# and their sums.
#
#   tests/check.sh BUILD MAKE-COMMAND... -- PART...
set -u
build=$1
shift
make=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
	make+=("$1")
	shift
done
shift
mkdir -p "$build"
passed=0
failed=0
summary=
failures=

# Check names each test that failed with its place; of another part, how its output ends.
what_failed() {
	grep -E '^[^ ]+:[0-9]+:[FE]:' "$build/check-$1.log" ||
		grep -v '^make' "$build/check-$1.log" | tail -n 5
}

# Check ends with a line such as "100%: Checks: 7, Failures: 0, Errors: 0"; a part without one counts as
# one test.
count() {
	local part=$1 code=$2 line checks bad
	line=$(grep -E '^[0-9]+%: Checks: [0-9]+, Failures: [0-9]+, Errors: [0-9]+$' "$build/check-$part.log" | tail -n 1)
	if [ -n "$line" ]; then
		read -r checks bad < <(sed -E 's/^[0-9]+%: Checks: ([0-9]+), Failures: ([0-9]+), Errors: ([0-9]+)$/\1 \2+\3/' <<<"$line")
		bad=$((bad))
		checks=$((checks - bad))
		# A runner that died behind its summary, or never came to it, has failed all the same.
		[ "$code" -eq 0 ] || [ "$bad" -gt 0 ] || bad=1
	elif [ "$code" -eq 0 ]; then
		line=passed checks=1 bad=0
	else
		line="failed, exit code $code" checks=0 bad=1
	fi
	[ "$bad" -eq 0 ] || failures+=$(what_failed "$part")$'\n'
	passed=$((passed + checks))
	failed=$((failed + bad))
	summary+="$part: $line"$'\n'
}

# Each part runs in the background so that a signal reaches it at once.
running=
trap '[ -z "$running" ] || kill -TERM "$running" 2>/dev/null; wait; exit 143' INT TERM HUP
for part in "$@"; do
	exec 3> >(tee "$build/check-$part.log")
	log=$!
	"${make[@]}" --no-print-directory "check-$part" >&3 2>&1 3>&- &
	running=$!
	exec 3>&-
	wait "$running"
	code=$?
	wait "$log"
	count "$part" "$code"
done
[ -z "$failures" ] || printf '\nwhat failed:\n%s' "$failures"
printf '\n%s%d passed, %d failed\n' "$summary" "$passed" "$failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
