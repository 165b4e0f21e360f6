#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The demo: a private broker and database, 10 000 messages with duplicates among them from a client that knows
# nothing of inboxd, two handlers, and the sums.  Exits 0 only if every sum agrees.
#
#   tests/demo/demo.sh BUILD
set -u
readonly COUNT=${INBOXD_DEMO_COUNT:-10000}
readonly DEADLINE_S=120
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/servers.sh
. "$here/../servers.sh"

build=$(cd "$1" && pwd) || exit 1
dir=$build/demo
servers=$dir/servers
inboxd=
publisher=

say() { printf '%s\n' "$*"; }

# shellcheck disable=SC2317 # called by the trap
finish() {
	local code=$?
	trap '' INT TERM HUP
	[ -z "$publisher" ] || kill -TERM "$publisher" 2>/dev/null
	if [ -n "$inboxd" ]; then
		kill -TERM "$inboxd" 2>/dev/null
		wait "$inboxd"
	fi
	servers_stop "$servers"
	[ "$code" -eq 0 ] || say "failed; what inboxd said: $dir/inboxd.log" >&2
	exit "$code"
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

query() { "$servers/psql" -d "$INBOXD_TEST_CONNINFO" -q -A -t -F ' ' -v ON_ERROR_STOP=1 "$@"; }

# ---- the stage -------------------------------------------------------------------------------

rm -rf "$dir"
mkdir -p "$dir/run"
say "starting a private PostgreSQL and RabbitMQ"
servers_start "$servers" --owner $$ || exit 1
# shellcheck source=/dev/null
. "$servers/env"
say "  PostgreSQL $(query -c 'SHOW server_version') on port $INBOXD_TEST_PGPORT," \
	"RabbitMQ $("$servers/rabbitmqctl" version) on port $INBOXD_TEST_AMQP_PORT"

# No unique constraint anywhere: nothing but inboxd keeps an effect from happening twice.
query <"$here/orders.sql" || exit 1
query <"$here/../../src/handlers/ledger.sql" || exit 1

cat >"$dir/inboxd.yaml" <<END
broker: {uri: "$INBOXD_TEST_AMQP_URI"}
database: {conninfo: "$INBOXD_TEST_CONNINFO"}
handlers: {directory: "$build/handlers"}
runtime_directory: "$dir/run"
consumers:
  orders:
    queue: orders
    topology: {}
    workers: 2
    handler: sql
    options:
      statement: INSERT INTO orders (id, account, amount) VALUES (\$1, \$2, \$3)
      parameters: [json:/id, json:/account, json:/amount]
  ledger:
    queue: ledger
    topology: {}
    handler: ledger
END
"$build/inboxctl" -c "$dir/inboxd.yaml" migrate 2>>"$dir/inboxd.log" || exit 1

say "starting inboxd: consumer orders with the handler sql and two workers, consumer ledger with the C handler"
"$build/inboxd" -c "$dir/inboxd.yaml" 2>"$dir/inboxd.log" &
inboxd=$!
until [ "$(grep -c 'event=consuming' "$dir/inboxd.log")" -ge 2 ]; do
	kill -0 "$inboxd" 2>/dev/null || { tail "$dir/inboxd.log" >&2; exit 1; }
	[ "$SECONDS" -lt "$DEADLINE_S" ] || { say "inboxd does not consume" >&2; exit 1; }
	sleep 0.1
done

# ---- the play --------------------------------------------------------------------------------

say "publishing $COUNT messages with python3-pika"
"$here/publish.py" "$dir/plan" "$COUNT" &
publisher=$!

# Effects and parked messages, as the database has them.
progress() {
	query -c "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM ledger_order),
		(SELECT count(*) FROM inboxd.parked)"
}

# Ready and unacknowledged messages of both queues.
waiting() {
	"$servers/rabbitmqctl" -q list_queues messages_ready messages_unacknowledged --no-table-headers |
		awk '{ n += $1 + $2 } END { print NR < 2 ? "unknown" : n }'
}

show() {
	local orders ledger parked
	read -r orders ledger parked <<<"$1"
	printf "%s  %3d s: %6d orders, %6d ledger entries, %4d parked%s" "$from" \
		$((SECONDS - begun)) "$orders" "$ledger" "$parked" "$to"
}

from='' to=$'\n'
[ ! -t 1 ] || from=$'\r' to=''
begun=$SECONDS
before=
while :; do
	if [ -n "$publisher" ] && ! kill -0 "$publisher" 2>/dev/null; then
		wait "$publisher" || { say "the publisher failed" >&2; exit 1; }
		publisher=
	fi
	kill -0 "$inboxd" 2>/dev/null || { say "inboxd ended" >&2; exit 1; }
	[ $((SECONDS - begun)) -lt "$DEADLINE_S" ] || { say "not done in $DEADLINE_S s" >&2; exit 1; }
	now=$(progress) || exit 1
	[ "$now" = "$before" ] || show "$now"
	# When nothing changes any more, the broker is asked if that is the end.
	if [ "$now" = "$before" ] && [ -z "$publisher" ] && [ "$(waiting)" = 0 ]; then
		break
	fi
	before=$now
	sleep 0.4
done
[ ! -t 1 ] || echo

"$build/inboxctl" -c "$dir/inboxd.yaml" --json status >"$dir/status.json" || exit 1
kill -TERM "$inboxd"
wait "$inboxd"
code=$?
inboxd=
[ "$code" -eq 0 ] || { say "inboxd ended with $code" >&2; exit 1; }

# ---- the sums --------------------------------------------------------------------------------

# What the database holds of a queue: effects, different ones, their cents.
effects() {
	case $1 in
	orders) query -c "SELECT count(*), count(DISTINCT id), (coalesce(sum(amount), 0) * 100)::bigint FROM orders" ;;
	ledger) query -c "SELECT count(*), count(DISTINCT order_id),
		(SELECT (coalesce(sum(quantity * price), 0) * 100)::bigint FROM ledger_line) FROM ledger_order" ;;
	esac
}

# And what of it is parked: reused ids, without id, for any other reason.
parked() {
	query -c "SELECT count(*) FILTER (WHERE reason = 'mismatch'), count(*) FILTER (WHERE reason = 'no_key'),
		count(*) FILTER (WHERE reason NOT IN ('mismatch', 'no_key'))
		FROM inboxd.parked_view WHERE queue = '$1'"
}

# How many duplicates inboxd has counted, whatever their cause.
counted() {
	/usr/bin/python3 -c 'import json, sys
print(sum(row[cause] for row in json.load(open(sys.argv[1])) if row["consumer"] == sys.argv[2]
          for cause in ("redelivered", "republished", "concurrent")))' "$dir/status.json" "$1"
}

agree=yes
judge() {
	local queue=$1 published=$2 distinct=$3 copies=$4 reused=$5 without=$6 cents=$7
	local effects different booked mismatch no_key other duplicates verdict
	read -r effects different booked < <(effects "$queue")
	read -r mismatch no_key other < <(parked "$queue")
	duplicates=$(counted "$queue")
	verdict=agrees
	if [ "$effects" != "$distinct" ] || [ "$different" != "$distinct" ] || [ "$booked" != "$cents" ] ||
		[ "$duplicates" != "$copies" ] || [ "$mismatch" != "$reused" ] || [ "$no_key" != "$without" ] ||
		[ "$published" != $((effects + duplicates + mismatch + no_key + other)) ]; then
		verdict="DIFFERS: sent were $distinct distinct, $copies copies, $reused reused, $without without id, $cents cents; booked are $booked, parked for other reasons $other"
		agree=no
	fi
	printf '%-8s %10d %10d %10d %11d %10d %8d  %s\n' \
		"$queue" "$published" "$distinct" "$effects" "$duplicates" "$mismatch" "$no_key" "$verdict"
}

echo
printf '%-8s %10s %10s %10s %11s %19s  %s\n' '' '' distinct '' '' '------ parked -----' ''
printf '%-8s %10s %10s %10s %11s %10s %8s  %s\n' \
	queue published keys effects duplicates mismatch no_key sums
while read -r -a numbers; do
	judge "${numbers[@]}"
done <"$dir/plan"
echo
[ "$agree" = yes ] || exit 1
say "published = effects + duplicates + parked, effects = distinct keys, and every cent is there once"
