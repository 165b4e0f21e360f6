# SPDX-License-Identifier: MIT
"""The Celery application of `make bench`: one task, which has its effect once.

As Celery's documentation has it for tasks that are idempotent and must not be lost: acks_late, and back to the
queue when the process dies (task_reject_on_worker_lost); retried while the database is away.  For many short
tasks: a large prefetch, and no results.  Processes are as many as processors, its default.
"""
import os

import psycopg2
from celery import Celery, bootsteps, signals
from kombu import Queue
from kombu.common import QoS

QUEUE = os.environ["BENCH_QUEUE"]
MARKER = "INSERT INTO bench_marker (consumer, key) VALUES (1, %s) ON CONFLICT DO NOTHING"
ROW = "INSERT INTO bench_row (id, account, amount, sent_us) VALUES (%(id)s, %(account)s, %(amount)s, %(sent_us)s)"

app = Celery("orders", broker=os.environ["BENCH_AMQP_URI"])
app.conf.update(
    # The queue is there already; the default exchange routes to it by its name.
    task_queues=[Queue(QUEUE, exchange="", routing_key=QUEUE, no_declare=True)],
    task_default_queue=QUEUE,
    task_ignore_result=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=128,
)


class PrefetchOfConsumer(bootsteps.StartStopStep):
    """Quorum queues have no prefetch for a whole channel, which is what this version of Celery asks for."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def start(self, parent):
        channel = parent.connection.default_channel
        channel.basic_qos(0, 0, True)
        channel.basic_qos(0, parent.initial_prefetch_count, False)
        parent.qos = QoS(
            lambda prefetch_count: parent.task_consumer.qos(prefetch_count=prefetch_count, apply_global=False),
            parent.initial_prefetch_count)


if os.environ.get("BENCH_TYPE") == "quorum":
    app.steps["consumer"].add(PrefetchOfConsumer)


class Database:
    """One connection in each process, made after the fork."""

    connection = None


@signals.worker_process_init.connect
def connect(**_):
    Database.connection = psycopg2.connect("")


@app.task(name="orders.book", autoretry_for=(psycopg2.OperationalError,), retry_backoff=True, max_retries=None)
def book(order):
    if Database.connection is None or Database.connection.closed:
        connect()
    with Database.connection, Database.connection.cursor() as cursor:
        cursor.execute(MARKER, (order["id"],))
        if cursor.rowcount == 1:
            cursor.execute(ROW, order)
