#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Sees to it that Debian's packages for what comes next are there.
#
#   tests/deps.sh build|demo|check|bench|lint          installs them
#   tests/deps.sh list build|demo|check|bench|lint     names them
#
# demo contains build, check and bench contain demo; lint is build and the tools of developers.  As root it installs
# what is missing; otherwise it prints the one line that would, and fails.  The servers that come along are
# not started by it.
set -euo pipefail

# package, and how to tell that it is there where another one may give the same (a newer Node, say).
BUILD="
gcc             command -v cc
libc6-dev       -
make            -
pkg-config      command -v pkg-config
librabbitmq-dev -
libpq-dev       -
libyaml-dev     -
libsystemd-dev  -
libssl-dev      -
uthash-dev      -
"
DEMO="
postgresql      ls /usr/lib/postgresql/*/bin/postgres
rabbitmq-server -
python3         command -v python3
python3-pika    -
"
CHECK="
check             -
g++               command -v c++
amqp-tools        -
python3-celery    -
mosquitto-clients -
nodejs            command -v node
npm               command -v npm
ca-certificates   -
pgbouncer         -
locales           -
systemd           command -v systemd-analyze
valgrind          command -v valgrind
"
BENCH="
golang-go                             command -v go
golang-github-rabbitmq-amqp091-go-dev -
golang-github-jackc-pgx-v4-dev        -
nodejs                                command -v node
npm                                   command -v npm
ca-certificates                       -
python3-psycopg2                      -
python3-celery                        -
amqp-tools                            -
postgresql-client                     command -v psql
"
LINT="
clang        -
clang-format -
clang-tidy   -
cppcheck     -
g++          command -v c++
lcov         -
shellcheck   -
"

is_there() {
	local package=$1 test=$2
	if [ "$test" = - ]; then
		[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ]
	else
		sh -c "$test" >/dev/null 2>&1
	fi
}

missing_of() {
	local package test
	while read -r package test; do
		[ -z "$package" ] || is_there "$package" "$test" || printf '%s ' "$package"
	done <<<"$1"
}

# Packages of servers ask policy-rc.d before they start anything; ours says no, unless there is one.
forbid_starts() {
	local policy=/usr/sbin/policy-rc.d
	[ ! -e "$policy" ] || return 0
	# shellcheck disable=SC2064
	trap "rm -f $policy" EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
}

install_missing() {
	forbid_starts
	export DEBIAN_FRONTEND=noninteractive
	local options=(-q -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -o Dpkg::Use-Pty=0)
	local log
	log=$(mktemp)
	echo "installing: $* (what apt-get says: $log)"
	if ! { apt-get "${options[@]}" update && apt-get "${options[@]}" install --no-install-recommends "$@"; } \
		>"$log" 2>&1; then
		tail -n 40 "$log" >&2
		return 1
	fi
	rm -f "$log"
	if [ -d /run/systemd/system ]; then
		echo "note: PostgreSQL and RabbitMQ were not started, but may be enabled for the next boot;"
		echo "      systemctl disable postgresql rabbitmq-server epmd.socket   turns that off"
	fi
}

just_list=
if [ "${1:-}" = list ]; then
	just_list=1
	shift
fi
case "${1:-}" in
build) wanted=$BUILD ;;
demo) wanted=$BUILD$DEMO ;;
check) wanted=$BUILD$DEMO$CHECK ;;
bench) wanted=$BUILD$DEMO$BENCH ;;
lint) wanted=$BUILD$LINT ;;
*)
	echo "usage: $0 [list] build|demo|check|bench|lint" >&2
	exit 64
	;;
esac
names=$(awk 'NF { printf "%s%s", n++ ? " " : "", $1 }' <<<"$wanted")

if [ -n "$just_list" ]; then
	echo "$names"
	exit 0
fi
if ! command -v dpkg-query >/dev/null; then
	echo "not a Debian: nothing is checked; wanted are, by Debian's names: $names" >&2
	exit 0
fi
read -ra missing <<<"$(missing_of "$wanted")"
[ "${#missing[@]}" -gt 0 ] || exit 0
if [ "$(id -u)" -ne 0 ]; then
	echo "missing packages; this installs them:" >&2
	echo "  sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
	exit 1
fi
install_missing "${missing[@]}"
