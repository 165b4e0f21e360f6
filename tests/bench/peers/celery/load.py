#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""load.py COUNT PERCENT: the same orders as tests/bench/load publishes, but as Celery tasks: a worker takes nothing
but messages of its own format.  Prints how many different ids they have once the broker has them all."""
import sys

from orders import QUEUE, app, book

MASK = (1 << 64) - 1


def mixed(n):
    """SplitMix64, as in load.c."""
    n = (n + 0x9E3779B97F4A7C15) & MASK
    n = (n ^ n >> 30) * 0xBF58476D1CE4E5B9 & MASK
    n = (n ^ n >> 27) * 0x94D049BB133111EB & MASK
    return n ^ n >> 31


def order_of(number):
    a, b = mixed(2 * number), mixed(2 * number + 1)
    key = f"{a >> 32:08x}-{a >> 16 & 0xffff:04x}-4{a & 0xfff:03x}-a{b >> 52:03x}-{b & 0xffffffffffff:012x}"
    order = {"id": key, "account": str(number % 10007), "amount": f"{number % 997}.{number % 100:02d}",
             "sent_us": "0", "note": ""}
    order["note"] = "a" * (200 - sum(len(k) + len(v) + 6 for k, v in order.items()) - 1)
    return order


def main(count, percent):
    used = set()
    with app.producer_or_acquire() as producer:
        for n in range(count):
            repeats = n >= 100 and mixed(n) % 100 < percent
            number = n - 1 - mixed(n + 1) % 99 if repeats else n
            used.add(number)
            order = order_of(number)
            book.apply_async((order,), task_id=order["id"], queue=QUEUE, producer=producer)
        # What the broker answers on the same channel comes after all it was sent before.
        producer.channel.queue_declare(QUEUE, passive=True)
    print(len(used))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
