#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A private PostgreSQL and a private RabbitMQ for the demo and the tests: own data, own ports on the
# loopback address, an unprivileged user, nothing of theirs left afterwards.
#
#   tests/servers.sh start DIR [--plugins NAME,...] [--owner PID] [--set NAME=VALUE]...
#   tests/servers.sh stop DIR
#   tests/servers.sh end DIR postgres|rabbitmq|standby [SIGNAL]
#   tests/servers.sh begin DIR postgres|rabbitmq|standby
#   tests/servers.sh copy DIR
#
# start puts into DIR: env (to be sourced: addresses and secrets), psql and rabbitmqctl (wrappers),
# postgres.log and rabbitmq.log.  With --owner, the servers stop by themselves when that process is gone.
# --set is a setting of PostgreSQL's.
# end and begin are for tests that take one server away for a while: it comes back at the same address with
# the same data.  copy makes and begins a second PostgreSQL, a streaming standby of the first: standby.port
# and standby.log; ended, it is gone for good with the next copy.
# As root the servers run as the user that Debian's packages made; otherwise as the caller.  Data lives in
# DIR where that user can use it, else below /tmp.  Can be sourced: servers_start, servers_stop.

readonly SERVERS_DEADLINE_S=${INBOXD_TEST_DEADLINE:-90}
readonly SERVERS_TRIES=3
SERVERS_PG_SETTINGS=()
SERVERS_SELF=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly SERVERS_SELF

servers_say() { printf '%s\n' "$*" >&2; }

# ---- who and where ---------------------------------------------------------------------------

# The unprivileged user the servers run as; empty: the caller.
servers_user() {
	[ "$(id -u)" -eq 0 ] || return 0
	local name
	for name in postgres rabbitmq nobody; do
		if id -u "$name" >/dev/null 2>&1; then
			printf '%s' "$name"
			return 0
		fi
	done
	servers_say "no unprivileged user to run the servers as"
	return 1
}

# Words to put in front of a command to run it as that user.
servers_as() {
	[ -z "$1" ] || printf '%s\n' setpriv --reuid="$1" --regid="$(id -g "$1")" --init-groups \
		--inh-caps=-all --
}

servers_pgbin() {
	if [ -n "${INBOXD_TEST_PGBIN:-}" ]; then
		printf '%s' "$INBOXD_TEST_PGBIN"
		return 0
	fi
	local bin
	bin=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
	[ -x "$bin/postgres" ] || { servers_say "no PostgreSQL server in /usr/lib/postgresql"; return 1; }
	printf '%s' "$bin"
}

servers_rabbitbin() {
	local bin=/usr/lib/rabbitmq/bin
	[ -x "$bin/rabbitmq-server" ] || { servers_say "no RabbitMQ server in $bin"; return 1; }
	printf '%s' "$bin"
}

# Ports below the range of outgoing connections, in which nothing listens just now.  Somebody else may
# take one in the next moment: then the server fails to start and is tried again with others.
servers_ports() {
	local n=$1 port taken=" "
	while [ "$n" -gt 0 ]; do
		port=$((10240 + (RANDOM * 32768 + RANDOM) % 21000))
		case "$taken" in *" $port "*) continue ;; esac
		if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
			continue
		fi
		taken="$taken$port "
		printf '%s\n' "$port"
		n=$((n - 1))
	done
}

servers_secret() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; }

# ---- processes -------------------------------------------------------------------------------

# Prints when a process was started (field 22 of /proc/PID/stat), which tells it from a later one of the
# same pid; fails if there is none, or only its remains.
servers_born() {
	local stat
	{ read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
	# shellcheck disable=SC2086
	set -- ${stat##*) }
	[ "$1" != Z ] && printf '%s' "${20}"
}

# Pids of a session's processes.
servers_session() {
	local session=$1 file stat
	for file in /proc/[0-9]*/stat; do
		{ read -r stat <"$file"; } 2>/dev/null || continue
		# shellcheck disable=SC2086
		set -- ${stat##*) }
		[ "$4" != "$session" ] || [ "$1" = Z ] || printf '%s\n' "${stat%% *}"
	done
}

# Starts a command as leader of a session of its own and remembers it in DIR/NAME.pid.
servers_spawn() {
	local dir=$1 name=$2 log=$3
	shift 3
	setsid "$@" </dev/null >>"$log" 2>&1 &
	disown $!
	printf '%s %s\n' $! "$(servers_born $!)" >"$dir/$name.pid"
	SPAWNED=$!
}

# Writes DIR/NAME.start, which becomes the server, and starts it.
servers_launch() {
	local dir=$1 name=$2
	shift 2
	{ printf '#!/bin/sh\nexec'; printf " '%s'" "$@"; echo; } >"$dir/$name.start"
	servers_spawn "$dir" "$name" "$(servers_log "$dir" "$name")" sh "$dir/$name.start"
}

servers_log() {
	case $2 in
	epmd) printf '%s/rabbitmq.log' "$1" ;;
	*) printf '%s/%s.log' "$1" "$2" ;;
	esac
}

# Ends a process that servers_spawn started, and all of its session; waits until nobody is left.
servers_end() {
	local dir=$1 name=$2 pid born now signal=${3:-} deadline
	{ read -r pid born <"$dir/$name.pid"; } 2>/dev/null || return 0
	# A pid is not given away while a session of that number lives: another start time means that
	# nobody of ours is left.
	if now=$(servers_born "$pid") && [ "$now" != "$born" ]; then
		rm -f "$dir/$name.pid"
		return 0
	fi
	if [ -z "$signal" ]; then
		case $name in
		postgres | standby) signal=INT ;; # fast shutdown
		*) signal=KILL ;;
		esac
	fi
	kill -"$signal" "$pid" 2>/dev/null
	deadline=$((SECONDS + 10))
	while servers_born "$pid" >/dev/null || [ -n "$(servers_session "$pid")" ]; do
		if [ "$signal" = KILL ] || [ "$SECONDS" -ge "$deadline" ]; then
			# shellcheck disable=SC2046
			kill -KILL "$pid" $(servers_session "$pid") 2>/dev/null
		fi
		sleep 0.05
	done
	rm -f "$dir/$name.pid"
}

# Waits until the server that was just spawned can be used.
servers_await() {
	local dir=$1 name=$2 deadline=$((SECONDS + SERVERS_DEADLINE_S))
	until servers_answers "$dir" "$name"; do
		servers_born "$SPAWNED" >/dev/null || return 1
		[ "$SECONDS" -lt "$deadline" ] || return 1
		sleep 0.05
	done
}

servers_answers() {
	local dir=$1 sockets
	read -r sockets <"$dir/places"
	case $2 in
	# The console is started last, when everything else listens.
	rabbitmq) [ -S "$sockets/console" ] ;;
	*) "$(servers_pgbin)/pg_isready" -q -h "$sockets" -p "$(cat "$dir/$2.port")" ;;
	esac
}

# Starts again what servers_end has ended.  A server that was killed may hold what the next one needs for
# another moment.
servers_begin() {
	local dir=$1 name=$2 sockets try
	read -r sockets <"$dir/places" || return 1
	for ((try = 0; try < SERVERS_TRIES; try++)); do
		[ "$name" != rabbitmq ] || rm -f "$sockets/console"
		(cd / && servers_spawn "$dir" "$name" "$(servers_log "$dir" "$name")" sh "$dir/$name.start" &&
			servers_await "$dir" "$name") && return 0
		servers_end "$dir" "$name"
		sleep 1
	done
	tail -n 20 "$(servers_log "$dir" "$name")" >&2
	return 1
}

# ---- PostgreSQL ------------------------------------------------------------------------------

servers_postgres_init() {
	local base=$1 pgbin=$2 user=$3
	shift 3
	(umask 077; printf '%s\n' "$PG_PASSWORD" >"$base/pg-password")
	[ -z "$user" ] || chown "$user:" "$base/pg-password"
	"$@" "$pgbin/initdb" -D "$base/postgres" -U postgres -E UTF8 --locale=C --no-sync \
		--auth-local=trust --auth-host=scram-sha-256 --pwfile="$base/pg-password" >/dev/null
}

# fsync stays on: what the tests show about commits must hold as it holds in production.
servers_postgres_launch() {
	local dir=$1 name=$2 base=$3 pgbin=$4 port=$5
	shift 5
	echo "$port" >"$dir/$name.port"
	servers_launch "$dir" "$name" "$@" env LOCPATH="$base/locale" \
		"$pgbin/postgres" -D "$base/$name" \
		-c listen_addresses=127.0.0.1 -c port="$port" -c unix_socket_directories="$SOCKETS" \
		-c max_connections=200 -c shared_buffers=128MB -c fsync=on -c max_wal_size=1GB \
		-c log_line_prefix='%m [%p] %a ' -c log_statement=none -c lc_messages=C \
		-c timezone=UTC -c log_timezone=UTC "${SERVERS_PG_SETTINGS[@]}"
	servers_await "$dir" "$name"
}

servers_postgres_once() {
	local dir=$1 base=$2 pgbin=$3
	shift 3
	PG_PORT=$(servers_ports 1)
	servers_postgres_launch "$dir" postgres "$base" "$pgbin" "$PG_PORT" "$@" || return 1
	"$pgbin/psql" -X -q -v ON_ERROR_STOP=1 -h "$SOCKETS" -p "$PG_PORT" -U postgres -d postgres \
		-v password="$PG_PASSWORD" <<-'SQL' >>"$dir/postgres.log" 2>&1
		CREATE ROLE inboxd LOGIN PASSWORD :'password' CREATEDB;
		CREATE DATABASE inboxd_test OWNER inboxd;
	SQL
}

servers_postgres() {
	local dir=$1 base=$2 pgbin=$3 user=$4 try
	shift 4
	servers_postgres_init "$base" "$pgbin" "$user" "$@" || return 1
	for ((try = 0; try < SERVERS_TRIES; try++)); do
		servers_postgres_once "$dir" "$base" "$pgbin" "$@" && break
		servers_end "$dir" postgres
		[ "$try" -lt $((SERVERS_TRIES - 1)) ] || return 1
	done
	cat >"$dir/postgres.env" <<-END
		export INBOXD_TEST_PGHOST='127.0.0.1'
		export INBOXD_TEST_PGPORT='$PG_PORT'
		export INBOXD_TEST_PGSOCKETS='$SOCKETS'
		export INBOXD_TEST_PGDATA='$base/postgres'
		export INBOXD_TEST_PGPASSWORD='$PG_PASSWORD'
		export INBOXD_TEST_SERVERS='$dir'
		export INBOXD_TEST_CONNINFO='host=127.0.0.1 port=$PG_PORT dbname=inboxd_test user=inboxd password=$PG_PASSWORD'
		export INBOXD_TEST_ADMIN_CONNINFO='host=$SOCKETS port=$PG_PORT dbname=inboxd_test user=postgres'
	END
	cat >"$dir/psql" <<-END
		#!/bin/sh
		exec '$pgbin/psql' -X -d 'host=$SOCKETS port=$PG_PORT dbname=inboxd_test user=postgres' "\$@"
	END
	chmod +x "$dir/psql"
}

# A standby of the server that runs.
servers_copy() {
	local dir=$1 base pgbin user as port
	{ read -r SOCKETS; read -r base; } <"$dir/places" || return 1
	user=$(servers_user) && pgbin=$(servers_pgbin) || return 69
	mapfile -t as < <(servers_as "$user")
	servers_end "$dir" standby KILL
	rm -rf "$base/standby"
	port=$(servers_ports 1)
	(cd / && "${as[@]}" "$pgbin/pg_basebackup" -D "$base/standby" -R -c fast --no-sync \
		-d "host=$SOCKETS port=$(cat "$dir/postgres.port") user=postgres" &&
		servers_postgres_launch "$dir" standby "$base" "$pgbin" "$port" "${as[@]}")
}

# ---- RabbitMQ --------------------------------------------------------------------------------

servers_rabbit_configure() {
	local base=$1 plugins=$2
	cat <<-END >"$base/rabbitmq/rabbitmq.conf"
		listeners.tcp.1 = 127.0.0.1:$AMQP_PORT
		default_user = inboxd
		default_pass = $AMQP_PASSWORD
		default_vhost = /
		log.file = false
		log.console = true
		log.console.level = info
		disk_free_limit.absolute = 1MB
		max_message_size = 134217728
	END
	case ",$plugins," in *,rabbitmq_mqtt,*)
		echo "mqtt.listeners.tcp.1 = 127.0.0.1:$MQTT_PORT" >>"$base/rabbitmq/rabbitmq.conf" ;;
	esac
	case ",$plugins," in *,rabbitmq_stomp,*)
		echo "stomp.listeners.tcp.1 = 127.0.0.1:$STOMP_PORT" >>"$base/rabbitmq/rabbitmq.conf" ;;
	esac
	echo "[$plugins]." >"$base/rabbitmq/enabled_plugins"
	# The name "localhost" must work even where nothing resolves it (a bare chroot).
	cat <<-END >"$base/rabbitmq/inetrc"
		{host, {127,0,0,1}, ["localhost"]}.
		{lookup, [file, native]}.
	END
	cat <<-END >"$base/rabbitmq/settings"
		HOME=$base/rabbitmq
		ERL_INETRC=$base/rabbitmq/inetrc
		ERL_EPMD_ADDRESS=127.0.0.1
		ERL_EPMD_PORT=$EPMD_PORT
		ERL_CRASH_DUMP=/dev/null
		INBOXD_CONSOLE=$SOCKETS/console
		RABBITMQ_NODENAME=inboxd-$AMQP_PORT@localhost
		RABBITMQ_USE_LONGNAME=false
		RABBITMQ_DIST_PORT=$DIST_PORT
		RABBITMQ_CTL_DIST_PORT_MIN=20000
		RABBITMQ_CTL_DIST_PORT_MAX=60000
		RABBITMQ_CONF_ENV_FILE=/dev/null
		RABBITMQ_CONFIG_FILE=$base/rabbitmq/rabbitmq.conf
		RABBITMQ_ADVANCED_CONFIG_FILE=$base/rabbitmq/none.config
		RABBITMQ_GENERATED_CONFIG_DIR=$base/rabbitmq/config
		RABBITMQ_ENABLED_PLUGINS_FILE=$base/rabbitmq/enabled_plugins
		RABBITMQ_PLUGINS_EXPAND_DIR=$base/rabbitmq/plugins
		RABBITMQ_MNESIA_BASE=$base/rabbitmq/mnesia
		RABBITMQ_LOG_BASE=$base/rabbitmq/log
		RABBITMQ_SCHEDULER_BIND_TYPE=u
		LANG=C.UTF-8
		LC_ALL=C.UTF-8
	END
}

servers_rabbit_once() {
	local dir=$1 base=$2 rabbitbin=$3 plugins=$4 user=$5 settings
	shift 5
	{ read -r AMQP_PORT; read -r DIST_PORT; read -r EPMD_PORT; read -r MQTT_PORT; read -r STOMP_PORT; } \
		< <(servers_ports 5)
	rm -rf "$base/rabbitmq/mnesia"
	servers_rabbit_configure "$base" "$plugins"
	mapfile -t settings <"$base/rabbitmq/settings"
	[ -z "$user" ] || chown -R "$user:" "$base/rabbitmq"
	servers_launch "$dir" epmd "$@" epmd -port "$EPMD_PORT" -address 127.0.0.1
	servers_launch "$dir" rabbitmq "$@" env "${settings[@]}" RUNNING_UNDER_SYSTEMD=1 \
		RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-pa $base/rabbitmq/ebin -s inboxd_console start" \
		"$rabbitbin/rabbitmq-server"
	servers_await "$dir" rabbitmq
}

servers_rabbit() {
	local dir=$1 base=$2 rabbitbin=$3 plugins=$4 user=$5 try setting
	shift 5
	mkdir -p "$base/rabbitmq/ebin" "$base/rabbitmq/log" "$base/rabbitmq/config"
	(umask 077; servers_secret >"$base/rabbitmq/.erlang.cookie")
	chmod 400 "$base/rabbitmq/.erlang.cookie"
	HOME="$base/rabbitmq" erlc -o "$base/rabbitmq/ebin" "$SERVERS_SELF/inboxd_console.erl" || return 1
	for ((try = 0; try < SERVERS_TRIES; try++)); do
		servers_rabbit_once "$dir" "$base" "$rabbitbin" "$plugins" "$user" "$@" && break
		servers_end "$dir" rabbitmq
		servers_end "$dir" epmd
		[ "$try" -lt $((SERVERS_TRIES - 1)) ] || return 1
	done
	cat >"$dir/rabbitmq.env" <<-END
		export INBOXD_TEST_AMQP_URI='amqp://inboxd:$AMQP_PASSWORD@127.0.0.1:$AMQP_PORT/%2F'
		export INBOXD_TEST_AMQP_PORT='$AMQP_PORT'
		export INBOXD_TEST_AMQP_PASSWORD='$AMQP_PASSWORD'
		export INBOXD_TEST_MQTT_PORT='$MQTT_PORT'
		export INBOXD_TEST_STOMP_PORT='$STOMP_PORT'
		export INBOXD_TEST_NODENAME='inboxd-$AMQP_PORT@localhost'
		export INBOXD_TEST_CONSOLE='$SOCKETS/console'
		export INBOXD_TEST_RABBITMQCTL='$dir/rabbitmqctl'
	END
	{
		echo '#!/bin/sh'
		echo 'cd / || exit 1'
		printf 'exec'
		[ $# -eq 0 ] || printf " '%s'" "$@"
		printf ' env'
		while read -r setting; do
			printf " '%s'" "$setting"
		done <"$base/rabbitmq/settings"
		# shellcheck disable=SC2016
		printf " RABBITMQ_CTL_ERL_ARGS='+S 1:1 +sbwt none' '%s/rabbitmqctl' "'"$@"\n' "$rabbitbin"
	} >"$dir/rabbitmqctl"
	chmod +x "$dir/rabbitmqctl"
}

# ---- both ------------------------------------------------------------------------------------

# Whether a directory can hold the servers' data: the server user reaches it, and its name survives the
# splitting of Erlang's arguments.
servers_suits() {
	local dir=$1
	shift
	case $dir in *[!A-Za-z0-9_./+,@%=-]*) return 1 ;; esac
	"$@" test -x "$dir" 2>/dev/null
}

servers_watch() {
	local owner=$1 born=$2 dir=$3 sockets
	while [ "$(servers_born "$owner")" = "$born" ]; do
		[ -f "$dir/env" ] || return 0
		sleep 1
	done
	# The next run may already be there, in the same place.
	{ read -r sockets <"$dir/places"; } 2>/dev/null && [ "$sockets" = "$SOCKETS" ] || return 0
	servers_stop "$dir"
}

servers_show_logs() {
	local dir=$1 log
	for log in postgres standby rabbitmq; do
		[ -s "$dir/$log.log" ] || continue
		servers_say "--- $dir/$log.log ends with"
		tail -n 30 "$dir/$log.log" >&2
	done
}

servers_start() {
	local dir=$1 plugins='' owner='' owner_born='' user pgbin rabbitbin as base ok=1 pg rabbit
	shift
	while [ $# -gt 0 ]; do
		case $1 in
		--plugins) plugins=$2 ;;
		--owner) owner=$2 owner_born=$(servers_born "$2") ;;
		--set) SERVERS_PG_SETTINGS+=(-c "$2") ;;
		*) servers_say "unknown option $1"; return 64 ;;
		esac
		shift 2
	done
	mkdir -p "$dir" && dir=$(cd "$dir" && pwd) || return 1
	user=$(servers_user) && pgbin=$(servers_pgbin) && rabbitbin=$(servers_rabbitbin) || return 69
	mapfile -t as < <(servers_as "$user")
	servers_stop "$dir"
	rm -f "$dir"/*.log "$dir"/*.env

	SOCKETS=$(mktemp -d /tmp/inboxd-test.XXXXXX) || return 1
	chmod 711 "$SOCKETS"
	base=$SOCKETS
	if servers_suits "$dir" "${as[@]}"; then
		base=$dir/data
		mkdir -p "$base"
	fi
	printf '%s\n' "$SOCKETS" "$base" >"$dir/places"
	mkdir -p "$base/rabbitmq"
	[ -z "$user" ] || chown -R "$user:" "$SOCKETS" "$base"
	chmod 700 "$SOCKETS" "$base"
	PG_PASSWORD=$(servers_secret)
	AMQP_PASSWORD=$(servers_secret)

	(cd / && servers_postgres "$dir" "$base" "$pgbin" "$user" "${as[@]}") &
	pg=$!
	(cd / && servers_rabbit "$dir" "$base" "$rabbitbin" "$plugins" "$user" "${as[@]}") &
	rabbit=$!
	wait "$pg" || { servers_say "PostgreSQL did not start"; ok=0; }
	wait "$rabbit" || { servers_say "RabbitMQ did not start"; ok=0; }
	if [ "$ok" = 0 ]; then
		servers_show_logs "$dir"
		servers_stop "$dir"
		return 1
	fi
	(umask 077; cat "$dir/postgres.env" "$dir/rabbitmq.env" >"$dir/env")
	rm -f "$dir/postgres.env" "$dir/rabbitmq.env"
	if [ -n "$owner" ]; then
		servers_watch "$owner" "$owner_born" "$dir" </dev/null >/dev/null 2>&1 &
		disown $!
	fi
}

servers_stop() {
	local dir=$1 place name
	for name in rabbitmq epmd standby postgres; do
		servers_end "$dir" "$name"
	done
	[ -f "$dir/places" ] || return 0
	while read -r place; do
		# A file system that a test has made and could not end.
		umount "$place/full" 2>/dev/null
		rm -rf "$place"
	done <"$dir/places"
	rm -f "$dir/places" "$dir/env" "$dir/psql" "$dir/rabbitmqctl" "$dir"/*.env "$dir"/*.start \
		"$dir"/*.port
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
	case "${1:-}" in
	start | stop | end | begin | copy)
		[ $# -ge 2 ] || { servers_say "usage: $0 start|stop|end|begin|copy DIR"; exit 64; }
		"servers_$1" "${@:2}"
		exit
		;;
	*)
		servers_say "usage: $0 start DIR [--plugins NAME,...] [--owner PID]" \
			"[--set NAME=VALUE]... | stop DIR | end DIR" \
			"SERVER [SIGNAL] | begin DIR SERVER | copy DIR"
		exit 64
		;;
	esac
fi
