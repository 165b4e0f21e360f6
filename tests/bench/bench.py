#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""`make bench`: inboxd beside the floor and beside what its users would write themselves, in one run.

    bench.py SERVERS BUILD OUT [--quick] [--only TEXT] [--memory COUNT]

SERVERS is a directory of tests/servers.sh whose servers run; OUT is where the results go as JSON.  In each round
every contestant empties a queue that was filled before; rounds are interleaved, so that what disturbs the machine
disturbs all of them.  After each the effects are counted: exactly one for each id that was sent and nothing left
in the queue, or the run ends.  Rates are messages (copies included) by the time between the first and the last
commit, latencies from just before publishing to the commit, both as the database tells them.
"""

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time

import pika
import psycopg2

HERE = os.path.dirname(os.path.abspath(__file__))
DEADLINE_S = 240
TICK = os.sysconf("SC_CLK_TCK")


def read_env(path):
    env = {}
    with open(path, encoding="utf-8") as f:
        for line in f:
            name, _, value = line.strip().removeprefix("export ").partition("=")
            env[name] = value.strip("'\"")
    return env


# ---- the stage: servers, one queue at a time, tables --------------------------------------------------------


class Stage:
    def __init__(self, servers, build):
        self.servers, self.build = servers, build
        self.work = os.path.join(build, "bench")
        os.makedirs(self.work, exist_ok=True)
        env = read_env(os.path.join(servers, "env"))
        self.uri = env["INBOXD_TEST_AMQP_URI"]
        self.conninfo = env["INBOXD_TEST_CONNINFO"]
        self.admin_conninfo = env["INBOXD_TEST_ADMIN_CONNINFO"]
        self.admin = psycopg2.connect(self.admin_conninfo)
        self.admin.autocommit = True
        names = dict(p.split("=", 1) for p in self.conninfo.split())
        self.peer_env = dict(
            os.environ, BENCH_AMQP_URI=self.uri, BENCH_QUEUE="bench", PGHOST=names["host"], PGPORT=names["port"],
            PGUSER=names["user"], PGDATABASE=names["dbname"], PGPASSWORD=names["password"])
        self.log = open(os.path.join(self.work, "log"), "w", encoding="utf-8")
        self.sql(f"ALTER ROLE {names['user']} REPLICATION")
        self.sql("DROP TABLE IF EXISTS public.bench_row, public.bench_marker")
        with open(os.path.join(HERE, "schema.sql"), encoding="utf-8") as f:
            self.sql(f.read())

    def sql(self, text):
        with self.admin.cursor() as cursor:
            cursor.execute(text)
            return cursor.fetchone() if cursor.description is not None else None

    def with_channel(self, do):
        connection = pika.BlockingConnection(pika.URLParameters(self.uri))
        try:
            return do(connection.channel())
        finally:
            connection.close()

    def begin(self, queue_type, queues=("bench",)):
        """Empty queues and empty tables."""
        self.peer_env["BENCH_TYPE"] = queue_type

        def declare(channel):
            for queue in queues:
                channel.queue_delete(queue)
                channel.queue_declare(queue, durable=True, arguments={"x-queue-type": queue_type})

        self.sql("TRUNCATE bench_row, bench_marker")
        self.with_channel(declare)

    def forget_slots(self):
        """What a peer has left would keep all WAL from here on."""
        self.sql("SELECT count(pg_drop_replication_slot(slot_name)) FROM pg_replication_slots WHERE NOT active")

    def left(self, queues=("bench",)):
        """What is ready in the queues, once nobody holds anything."""
        return self.with_channel(
            lambda channel: sum(channel.queue_declare(q, passive=True).method.message_count for q in queues))

    def fill(self, count, percent=10, size=200, rate=0, failing=0, queue="bench"):
        """How many different ids were sent."""
        done = subprocess.run(
            [os.path.join(self.build, "tests/bench/load"), self.uri, queue, str(count), str(percent), str(size),
             str(rate), str(failing)], stdout=subprocess.PIPE, text=True, check=True)
        return int(done.stdout)

    def rows(self):
        return self.sql("SELECT count(*) FROM bench_row")[0]

    def commits(self):
        """Seconds between the first and the last commit, rows, different ids."""
        return self.sql(
            "SELECT coalesce(extract(epoch FROM max(t) - min(t)), 0)::float, count(*), count(DISTINCT id) FROM "
            "(SELECT id, pg_xact_commit_timestamp(xmin) AS t FROM bench_row) r")

    def latencies_ms(self, after_us):
        return self.sql(
            "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY l), percentile_cont(0.99) WITHIN GROUP (ORDER BY l) "
            "FROM (SELECT (extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1e6 - sent_us)::float / 1000 AS l "
            f"FROM bench_row WHERE sent_us >= {after_us}) r")


# ---- processes ----------------------------------------------------------------------------------------------


def tree_of(pid):
    found, queue = [], [pid]
    while queue:
        parent = queue.pop()
        found.append(parent)
        try:
            with open(f"/proc/{parent}/task/{parent}/children", encoding="ascii") as f:
                queue += [int(p) for p in f.read().split()]
        except FileNotFoundError:
            pass
    return found


def kind_of(pid):
    """Of an inboxd process: its role; of all others "client"."""
    with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as f:
        line = f.read().replace("\0", " ")
    if not line.startswith("inboxd: "):
        return "supervisor" if "/inboxd -c" in line else "client"
    return line.split()[1]


class Usage:
    """CPU seconds by kind of process since the first effect, for starting is no part of a message's cost; the largest
    memory of all together (what they share counted once)."""

    def __init__(self, processes):
        self.pids, self.cpu, self.memory_mib = [p.pid for p in processes], {}, 0.0
        self.first_cpu, self.first_rows = {}, 0

    def look(self):
        memory = 0
        for pid in [q for p in self.pids for q in tree_of(p)]:
            try:
                with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
                    fields = f.read().rsplit(")", 1)[1].split()
                self.cpu[pid] = (kind_of(pid), sum(int(x) for x in fields[11:15]) / TICK)
                with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
                    memory += sum(int(line.split()[1]) for line in f if line.startswith("Pss:"))
            except (FileNotFoundError, ProcessLookupError):
                pass
        self.memory_mib = max(self.memory_mib, memory / 1024)

    def begin(self, rows):
        if rows != 0 and self.first_rows == 0:
            self.look()
            self.first_cpu, self.first_rows = dict(self.cpu), rows

    def by_kind(self):
        kinds = {}
        for pid, (kind, seconds) in self.cpu.items():
            kinds[kind] = kinds.get(kind, 0) + seconds - self.first_cpu.get(pid, ("", 0))[1]
        return kinds


def end(processes):
    for p in processes:
        p.send_signal(signal.SIGTERM)
    for p in processes:
        try:
            p.wait(20)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()


# ---- contestants --------------------------------------------------------------------------------------------


class Contestant:
    """Something that empties the queue."""

    def __init__(self, name, count, rounds=3):
        self.name, self.count, self.rounds = name, count, rounds

    def prepare(self, stage):
        """Before the queue is filled."""

    def fill(self, stage, count, **mix):
        return stage.fill(count, **mix)

    def start(self, stage, count):
        raise NotImplementedError


class Floor(Contestant):
    def __init__(self, name, count, mode, batch, copies=1, rounds=3):
        super().__init__(name, count, rounds)
        self.mode, self.batch, self.copies = mode, batch, copies

    def start(self, stage, count):
        command = [os.path.join(stage.build, "tests/bench/floor"), stage.uri, "bench", stage.conninfo, self.mode,
                   str(self.batch), str(count)]
        return [subprocess.Popen(command, stdout=stage.log, stderr=stage.log) for _ in range(self.copies)]


class Peer(Contestant):
    def __init__(self, name, count, peer, mode, rounds=3):
        super().__init__(name, count, rounds)
        self.command = [os.path.join(HERE, "peers/run.sh"), None, peer]
        self.mode = mode

    def run(self, stage, *arguments, **options):
        command = [self.command[0], stage.build, self.command[2], *arguments]
        return subprocess.Popen(command, env=stage.peer_env, stderr=stage.log, **options)

    def prepare(self, stage):
        if self.command[2] == "outbox" and self.run(stage, "setup", stdout=stage.log).wait() != 0:
            raise RuntimeError(f"{self.name}: setup failed")

    def fill(self, stage, count, **mix):
        if self.command[2] != "celery":
            return stage.fill(count, **mix)
        with self.run(stage, "load", str(count), "10", stdout=subprocess.PIPE, text=True) as loader:
            return int(loader.communicate()[0])

    def start(self, stage, count):
        return [self.run(stage, self.mode, stdout=stage.log)]


class Inboxd(Contestant):
    def __init__(self, name, count, workers=2, batch=100, handler="bench", options="{}", daemons=1,
                 queues=("bench",), rounds=3):
        super().__init__(name, count, rounds)
        self.workers, self.batch, self.handler, self.options = workers, batch, handler, options
        self.daemons, self.queues = daemons, queues

    def config(self, stage, i=0):
        directory = os.path.join(stage.work, f"run{i}")
        os.makedirs(directory, exist_ok=True)
        path = os.path.join(directory, "inboxd.yaml")
        with open(path, "w", encoding="utf-8") as f:
            f.write(f"""broker: {{uri: "{stage.uri}"}}
database: {{conninfo: "{stage.conninfo}"}}
handlers: {{directory: [{stage.build}/handlers, {stage.build}/tests/bench]}}
runtime_directory: {directory}
consumers:
""")
            for queue in self.queues:
                f.write(f"""  {queue}:
    queue: {queue}
    handler: {self.handler}
    options: {self.options}
    workers: {self.workers}
    batch: {{max: {self.batch}}}
""")
        return path

    def prepare(self, stage):
        path = self.config(stage)
        stage.sql("SET client_min_messages = warning; DROP SCHEMA IF EXISTS inboxd CASCADE")
        subprocess.run([os.path.join(stage.build, "inboxctl"), "-c", path, "migrate"], check=True, stdout=stage.log,
                       stderr=stage.log)

    def start(self, stage, count):
        return [subprocess.Popen([os.path.join(stage.build, "inboxd"), "-c", self.config(stage, i)],
                                 stderr=stage.log) for i in range(self.daemons)]


SQL_OPTIONS = ('{statement: "INSERT INTO public.bench_row (id, account, amount, sent_us) VALUES ($1, $2, $3, $4)", '
               "parameters: [json:/id, json:/account, json:/amount, json:/sent_us]}")


def until_done(stage, processes, expected, queues=("bench",)):
    """Waits until the rows are there; what the processes used."""
    usage = Usage(processes)
    deadline = time.monotonic() + DEADLINE_S
    with_ready = pika.BlockingConnection(pika.URLParameters(stage.uri))
    channel = with_ready.channel()
    while time.monotonic() < deadline and any(p.poll() is None for p in processes):
        if usage.first_rows == 0:
            usage.begin(stage.rows())
        usage.look()
        ready = sum(channel.queue_declare(q, passive=True).method.message_count for q in queues)
        if ready == 0 and stage.rows() >= expected:
            break
        time.sleep(0.1 if usage.first_rows != 0 else 0.02)
    with_ready.close()
    time.sleep(0.5)
    usage.look()
    return usage


def run(stage, contestant, queue_type, count, queues=("bench",), failing=0, **mix):
    """One turn of one contestant."""
    stage.forget_slots()
    contestant.prepare(stage)
    stage.begin(queue_type, queues)
    expected = 0
    for queue in queues:
        part = dict(mix, failing=failing, queue=queue) if queue != "bench" or failing or mix else {}
        expected += contestant.fill(stage, count // len(queues), **part)
    stage.sql("CHECKPOINT")
    processes = contestant.start(stage, count)
    try:
        usage = until_done(stage, processes, expected, queues)
    finally:
        end(processes)
    seconds, rows, ids = stage.commits()
    left = stage.left(queues)
    if rows != expected or (ids != expected and len(queues) == 1) or left != 0:
        raise RuntimeError(f"{contestant.name}: {expected} ids sent, {rows} rows, {ids} ids, {left} messages left")
    kinds = usage.by_kind()
    scale = 100000 / (count * (1 - usage.first_rows / (rows + 1)))
    return {"rate": count / max(seconds, 1e-6), "cpu": sum(kinds.values()) * scale,
            "cpu_by_kind": {k: round(v * scale, 3) for k, v in kinds.items()}, "memory": usage.memory_mib}


def latency(stage, contestant, queue_type, rate, seconds):
    contestant.prepare(stage)
    stage.begin(queue_type)
    processes = contestant.start(stage, rate * (seconds + 1))
    try:
        time.sleep(1.5)
        begin_us = int(time.time() * 1e6) + 1000000  # the first second is for plans and pages
        expected = stage.fill(rate * (seconds + 1), percent=0, rate=rate)
        until_done(stage, processes, expected)
    finally:
        end(processes)
    p50, p99 = stage.latencies_ms(begin_us)
    return {"p50": p50, "p99": p99}


# ---- the whole ----------------------------------------------------------------------------------------------


class Bench:
    def __init__(self, stage, is_quick, only):
        self.stage, self.is_quick, self.only = stage, is_quick, only
        self.runs, self.lines = {}, []

    def note(self, section, name, result):
        self.runs.setdefault((section, name), []).append(result)
        shown = "  ".join(f"{k} {v:.2f}" for k, v in result.items() if isinstance(v, float))
        print(f"  {section}: {name}: {shown}", file=sys.stderr, flush=True)

    def turns(self, queue_type, contestants):
        if self.only:
            contestants = [c for c in contestants if self.only in f"{queue_type} {c.name}"]
        rounds = 1 if self.is_quick else 3
        for i in range(rounds):
            for c in contestants:
                if i < c.rounds:
                    count = c.count // 3 if self.is_quick else c.count
                    self.note(queue_type, c.name, run(self.stage, c, queue_type, count))

    def median(self, section, name, field):
        found = [r[field] for r in self.runs.get((section, name), [])]
        return statistics.median(found) if found else None

    def ratio(self, what, target, section, name, others, field="rate", is_most=False):
        """A line of targets: `name` against the best of `others`, or against nothing."""
        mine = self.median(section, name, field)
        theirs = [x for x in (self.median(section, o, field) for o in others) if x is not None]
        if mine is None or (others and not theirs):
            return
        value = mine / (max(theirs) if theirs else 1)
        is_met = value <= target if is_most else value >= target
        self.lines.append({"what": what, "value": round(value, 2), "target": target, "most": is_most, "met": is_met})


FLOOR, FLOOR2 = "floor, batch 100", "floor, batch 100, 2 copies"
WAIT, WAIT2 = "floor, batch 100, waits for each row", "floor, batch 100, waits, 2 copies"
ONE, ONE4 = "floor, batch 1", "floor, batch 1, 4 copies"
INBOXD, SQL = "inboxd, 2 workers", "inboxd, 2 workers, handler sql"
INBOXD_WAIT = "inboxd, 2 workers, handler waits"
INBOXD_ONE = "inboxd, batch 1, 4 workers"
SINGLES = ["Node, pool of 10, prepared", "Go, 10 connections"]
ONES = ["Node, marker and row in one statement", "Go, marker and row in one statement"]
EXPERTS = ["Node, batched by hand, set-based", "Go, batched by hand", "Go, batched by hand, set-based"]


def contestants_of(queue_type):
    is_classic = queue_type == "classic"
    fast, slow = (60000, 6000) if is_classic else (90000, 6000)
    found = [
        Floor(FLOOR, fast, "queue", 100),
        Inboxd(INBOXD, fast),
        Floor(FLOOR2, fast, "queue", 100, copies=2),
        Inboxd(SQL, fast, handler="sql", options=SQL_OPTIONS),
        Peer(EXPERTS[0], fast, "node", "batch"),
        Peer(EXPERTS[1], fast, "go", "batch"),
        Peer(EXPERTS[2], fast, "go", "sets"),
        Peer(SINGLES[1], slow, "go", "pool"),
        Peer(SINGLES[0], slow, "node", "pool"),
    ]
    if is_classic:
        found += [
            Inboxd(INBOXD_ONE, slow, workers=4, batch=1),
            Floor(ONE, slow, "queue", 1),
            Floor(ONE4, slow, "queue", 1, copies=4),
            Floor(WAIT, 20000, "wait", 100),
            Inboxd(INBOXD_WAIT, 20000, options="{wait: 1}"),
            Floor(WAIT2, 20000, "wait", 100, copies=2),
            Peer(ONES[0], slow, "node", "one", rounds=1),
            Peer(ONES[1], slow, "go", "one", rounds=1),
            Peer("Python, pika and psycopg2", 4500, "python", "pika", rounds=1),
            Peer("Celery, acks_late", 4500, "celery", "worker", rounds=1),
            Peer("pg-transactional-outbox, polling", 1500, "outbox", "polling", rounds=1),
            Peer("pg-transactional-outbox, replication", 1500, "outbox", "replication", rounds=1),
            Peer("amqp-consume and psql", 180, "shell", "psql", rounds=1),
        ]
    return found


def quick_contestants(queue_type):
    names = {FLOOR, INBOXD, SQL, EXPERTS[1], SINGLES[1]}
    if queue_type == "classic":
        names |= {ONE, INBOXD_ONE, SINGLES[0]}
    return [c for c in contestants_of(queue_type) if c.name in names]


def latencies(bench):
    rates = (200,) if bench.is_quick else (200, 2000)
    seconds = 4
    for queue_type in ("classic",) if bench.is_quick else ("classic", "quorum"):
        for rate in rates:
            section = f"latency at {rate}/s, {queue_type}"
            for _ in range(1 if bench.is_quick else 3):
                for c in (Floor(FLOOR, 0, "queue", 100), Inboxd(INBOXD, 0)):
                    bench.note(section, c.name, latency(bench.stage, c, queue_type, rate, seconds))


def mixes(bench):
    stage, n = bench.stage, 60000
    plain = Inboxd("inboxd", n)
    for _ in range(3):
        bench.note("mix", "no duplicates", run(stage, plain, "classic", n, percent=0))
        bench.note("mix", "50 % duplicates", run(stage, plain, "classic", n, percent=50))
        bench.note("mix", "1 % fail", run(stage, plain, "classic", n, percent=0, failing=10))
    queues = tuple(f"bench{i}" for i in range(16))
    many = Inboxd("inboxd", n, workers=1, queues=queues)
    bench.note("mix", "16 consumers", run(stage, many, "classic", n // 16 * 16, queues=queues))
    bench.note("mix", "bodies of 1 MiB", run(stage, plain, "classic", 600, size=1 << 20))


def scaling(bench):
    for _ in range(2):
        for workers in (1, 2, 4):
            c = Inboxd(f"{workers} workers", 90000, workers=workers)
            bench.note("scaling", c.name, run(bench.stage, c, "classic", c.count))
        for daemons in (1, 2, 4):
            c = Inboxd(f"{daemons} daemons", 90000, daemons=daemons)
            bench.note("scaling", c.name, run(bench.stage, c, "classic", c.count))


def markers(bench):
    rows = ["0"] if bench.is_quick else ["0", "1000000"]
    done = subprocess.run([os.path.join(bench.stage.build, "tests/bench/markers"), bench.stage.admin_conninfo, "2", *rows],
                          stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def judge(bench):
    r = bench.ratio
    for queue_type, singles, expert in (("classic", 6, 1.1), ("quorum", 10, 1.4)):
        r(f"{queue_type}: inboxd / floor", 0.85, queue_type, INBOXD, [FLOOR])
        r(f"{queue_type}: inboxd, handler sql / floor", 0.75, queue_type, SQL, [FLOOR])
        r(f"{queue_type}: inboxd / best that commits each message", singles, queue_type, INBOXD, SINGLES)
        r(f"{queue_type}: inboxd / best batched by hand", expert, queue_type, INBOXD, EXPERTS)
        r(f"{queue_type}: CPU s of inboxd for 100 000", 0.5, queue_type, INBOXD, [], "cpu", True)
        r(f"{queue_type}: MiB of inboxd, 2 workers", 40, queue_type, INBOXD, [], "memory", True)
    r("classic: inboxd, handler waits / floor that waits, 2 copies", 0.85, "classic", INBOXD_WAIT, [WAIT2])
    r("classic: inboxd, batch 1, 4 workers / best that commits each", 1.2, "classic", INBOXD_ONE, SINGLES)
    for queue_type in ("classic", "quorum"):
        for rate in (200, 2000):
            section = f"latency at {rate}/s, {queue_type}"
            r(f"{section}: p50 / floor", 1.3, section, INBOXD, [FLOOR], "p50", True)
            r(f"{section}: p99 / floor", 1.5, section, INBOXD, [FLOOR], "p99", True)
    r("50 % duplicates / none", 1, "mix", "50 % duplicates", ["no duplicates"])
    r("1 % fail / none", 0.5, "mix", "1 % fail", ["no duplicates"])
    for kind in ("workers", "daemons"):
        for more, fewer in ((2, 1), (4, 2)):
            r(f"{more} {kind} / {fewer}", 0.9, "scaling", f"{more} {kind}", [f"{fewer} {kind}"])


def table(bench, marker_text):
    out = [f"{'':9}{'':42}{'messages/s':>11}{'CPU s/100k':>12}{'MiB':>7}"]
    for (section, name), runs in bench.runs.items():
        if "rate" in runs[0]:
            out.append(f"{section:9}{name:42}{bench.median(section, name, 'rate'):11.0f}"
                       f"{bench.median(section, name, 'cpu'):12.2f}{bench.median(section, name, 'memory'):7.1f}")
    for (section, name), runs in bench.runs.items():
        if "p50" in runs[0]:
            out.append(f"{section}: {name}: p50 {bench.median(section, name, 'p50'):.2f} ms, "
                       f"p99 {bench.median(section, name, 'p99'):.2f} ms")
    out.append("")
    for line in bench.lines:
        sign = "<=" if line["most"] else ">="
        out.append(f"{line['what']:66}{line['value']:8.2f}  {sign} {line['target']:<5}"
                   f"{'' if line['met'] else '  MISSED'}")
    out += ["", "what a marker costs:", marker_text]
    return "\n".join(out)


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        models = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    return f"{len(models)} x {models[0] if models else platform.machine()}, Linux {platform.release()}"


def memory(stage, count):
    """Whether memory stays as it is over many messages: by the queue filled again and again."""
    c = Inboxd("inboxd", count)
    c.prepare(stage)
    stage.begin("classic")
    processes = c.start(stage, count)
    usage = Usage(processes)
    sent = 0
    try:
        while sent < count:
            part = min(100000, count - sent)
            stage.sql("TRUNCATE bench_row")
            stage.sql("TRUNCATE inboxd.inbox CASCADE")
            expected = stage.fill(part)
            until_done(stage, processes, expected)
            sent += part
            usage.memory_mib = 0
            usage.look()
            print(f"{sent} messages: {usage.memory_mib:.1f} MiB", flush=True)
    finally:
        end(processes)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("servers")
    parser.add_argument("build")
    parser.add_argument("out")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", help="contestants with this in their name, and nothing else")
    parser.add_argument("--memory", type=int, help="just this: so many messages, and the memory after each 100 000")
    args = parser.parse_args()
    begin = time.monotonic()
    stage = Stage(os.path.abspath(args.servers), os.path.abspath(args.build))
    if args.memory:
        memory(stage, args.memory)
        return
    bench = Bench(stage, args.quick, args.only)
    for queue_type in ("classic", "quorum"):
        bench.turns(queue_type, (quick_contestants if args.quick else contestants_of)(queue_type))
    marker_text = ""
    if not args.only:
        latencies(bench)
        if not args.quick:
            mixes(bench)
            scaling(bench)
        marker_text = markers(bench)
    judge(bench)
    print(machine())
    print(table(bench, marker_text))
    print(f"took {time.monotonic() - begin:.0f} s")
    with open(args.out, "w", encoding="utf-8") as f:
        json.dump({"machine": machine(), "runs": [{"section": s, "name": n, "runs": r} for (s, n), r in
                                                  bench.runs.items()],
                   "targets": bench.lines, "markers": marker_text.splitlines()}, f, indent=1)


main()
