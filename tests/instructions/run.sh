#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Counts the instructions that a worker and a consumer execute for each message, under valgrind, and compares
# them with the file `expected`.  A clock would show how busy the machine is; these numbers show the program,
# and are the same again to half a per cent.
#
#   tests/instructions/run.sh BUILD VARIANT [COMPILER-OR-FLAG...]
#
# Two runs, one of twice as many messages: what the longer one executes more, start and end do not count.
# With a compiler or flags of the caller's own the numbers are shown and not compared.
# With INBOXD_TEST_ENV=FILE (an env file of tests/servers.sh) it uses servers that already run.
set -u
here=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=tests/servers.sh
. "$here/servers.sh"

build=$(realpath "$1") || exit 1
variant=$2
shift 2
dir=$build/tests/instructions
readonly MESSAGES=2000
# Above it fails, below it asks for new numbers.  Compilers differ by less than that, as do libraries.
readonly OWN_PERCENT=10 ALL_PERCENT=20

skip() {
	echo "check-instructions: skipped, $*"
	exit 0
}
[ "$variant" = release ] || skip "it counts what a release build executes, not $variant"
[ "$(uname -m)" = x86_64 ] || skip "its numbers are those of x86_64"
command -v valgrind >/dev/null || skip "there is no valgrind"

running=
# shellcheck disable=SC2317 # called by the trap
finish() {
	[ -z "$running" ] || { kill -TERM "$running" 2>/dev/null && wait "$running"; }
	[ -n "${INBOXD_TEST_ENV:-}" ] || servers_stop "$dir/servers"
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# In the background, so that a signal is handled at once.
run() {
	"$@" &
	running=$!
	wait "$running"
	local code=$?
	running=
	return "$code"
}

# Not every valgrind can read what every compiler writes for debuggers.
strip_programs() {
	local file
	mkdir -p "$dir/programs" || return 1
	for file in inboxd handlers/sql.so; do
		strip --strip-debug -o "$dir/programs/${file##*/}" "$build/$file" || return 1
	done
}

prepare() {
	strip_programs || return 1
	[ -n "${INBOXD_TEST_ENV:-}" ] || servers_start "$dir/servers" --owner $$ || return 1
	# shellcheck source=/dev/null
	. "${INBOXD_TEST_ENV:-$dir/servers/env}"
	# Batches grow to their limit however slow valgrind is.
	cat >"$dir/inboxd.yaml" <<-END
		broker: {uri: "$INBOXD_TEST_AMQP_URI"}
		database: {conninfo: "$INBOXD_TEST_CONNINFO", schema: instructions}
		handlers: {directory: "$dir/programs"}
		runtime_directory: "$dir"
		log: {level: warning}
		consumers:
		  main:
		    queue: instructions-$$
		    topology: {type: classic, arguments: {x-expires: 60000}}
		    handler: sql
		    options:
		      statement: "INSERT INTO instructions.orders VALUES (\$1, \$2, \$3)"
		      parameters: [message_id, json:/id, json:/total]
		    workers: 1
		    prefetch: 200
		    batch: {max: 100, time: 60s}
	END
	sql "DROP SCHEMA IF EXISTS instructions CASCADE" &&
		"$build/inboxctl" -c "$dir/inboxd.yaml" migrate >"$dir/migrate.log" 2>&1 &&
		sql "CREATE TABLE instructions.orders (message_id text, id bigint, total numeric)"
}

sql() {
	PGOPTIONS='-c client_min_messages=warning' \
		"$INBOXD_TEST_SERVERS/psql" -d "$INBOXD_TEST_CONNINFO" -q -v ON_ERROR_STOP=1 -c "$1"
}

# profile ROLE FIRST COUNT leaves DIR/ROLE-COUNT.
profile() {
	rm -f "$dir/$1-$3"
	DEBUGINFOD_URLS='' run "$build/tests/neighbours" "$1" "$dir/inboxd.yaml" "$2" "$3" \
		valgrind --tool=callgrind --compress-strings=no --log-file="$dir/$1-$3.log" \
		--callgrind-out-file="$dir/$1-$3" "$dir/programs/inboxd" && return
	tail -n 5 "$dir/$1-$3.log" >&2
	echo "check-instructions: the $1 did not come to its end" >&2
	exit 1
}

# counts FILE: what inboxd and the handler execute themselves, and that with all libraries.
counts() {
	awk -v ours="ob=$dir/programs/" '
		/^ob=/ { is_ours = index($0, ours) == 1 }
		/^calls=/ { getline; next }
		/^[0-9+*-]/ { all += $2; if (is_ours) own += $2 }
		END { printf "%d %d\n", own, all }' "$1"
}

failed=0
# judge NAME NUMBER PERCENT
judge() {
	local name=$1 number=$2 percent=$3 expected said
	expected=$(sed -n "s/^$name  *//p" "$here/instructions/expected")
	if [ "$number" -le 0 ]; then
		said="FAILED: nothing was counted"
		failed=1
	elif [ "${#flags[@]}" -gt 0 ]; then
		said="not compared: built with ${flags[*]}"
	elif [ -z "$expected" ]; then
		said="not in tests/instructions/expected"
		failed=1
	elif [ $((number * 100)) -gt $((expected * (100 + percent))) ]; then
		said="FAILED: more than $percent % over $expected"
		failed=1
	elif [ $((number * 100)) -lt $((expected * (100 - percent))) ]; then
		said="better than $expected by more than $percent %: update tests/instructions/expected"
	else
		said="expected $expected"
	fi
	printf '%-22s %6d  %s\n' "$name" "$number" "$said"
}

flags=("$@")
prepare || exit 1
echo "instructions per message:"
for role in worker consumer; do
	profile "$role" 1 "$MESSAGES"
	profile "$role" $((MESSAGES + 1)) $((2 * MESSAGES))
	read -r own all < <(counts "$dir/$role-$MESSAGES")
	read -r own_twice all_twice < <(counts "$dir/$role-$((2 * MESSAGES))")
	judge "$role" $(((own_twice - own) / MESSAGES)) "$OWN_PERCENT"
	judge "$role-with-libraries" $(((all_twice - all) / MESSAGES)) "$ALL_PERCENT"
done
[ "$failed" = 0 ] || echo "where they go: callgrind_annotate $dir/ROLE-$((2 * MESSAGES))" >&2
exit "$failed"
