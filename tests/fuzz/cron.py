#!/usr/bin/env python3
"""Random cron expressions around shifts of the clocks: outbox.cron_next against a search that
looks at every minute. The two share nothing but the IANA database.

usage: cron.py [--seed N] [--count N]

Needs psql, libpq's variables for a database with the schema outbox, and the system's zones
(/usr/share/zoneinfo). Prints every disagreement; exit status 1 if there is one.
"""
import argparse
import datetime
import functools
import random
import subprocess
import sys
import zoneinfo

MINUTE = datetime.timedelta(minutes=1)
RANGES = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)]
WINDOWS = [  # each with one shift, far enough from both ends
    ("Europe/Berlin", "2026-03-28 12:00", "2026-03-30 00:00"),
    ("Europe/Berlin", "2026-10-24 12:00", "2026-10-26 06:00"),
    ("Australia/Lord_Howe", "2026-04-04 00:00", "2026-04-05 12:00"),
    ("Australia/Lord_Howe", "2026-10-03 00:00", "2026-10-04 12:00"),
    ("America/Sao_Paulo", "2018-02-17 12:00", "2018-02-19 00:00"),
    ("America/Sao_Paulo", "2018-11-03 12:00", "2018-11-05 00:00"),
    ("America/St_Johns", "2006-04-01 12:00", "2006-04-03 00:00"),
    ("America/St_Johns", "2006-10-28 12:00", "2006-10-30 00:00"),
    ("Antarctica/Troll", "2024-03-30 12:00", "2024-04-01 00:00"),
    ("Antarctica/Troll", "2024-10-26 12:00", "2024-10-28 00:00"),
    ("Asia/Tehran", "2021-09-21 00:00", "2021-09-22 12:00"),
    ("Pacific/Apia", "2011-12-29 00:00", "2012-01-01 12:00"),
    ("UTC", "2026-03-28 12:00", "2026-03-29 12:00"),
]


def random_field(low, high, star):
    if random.random() < star:
        return random.choice(["*", "*", f"*/{random.randint(1, high - low + 1)}"])
    items = []
    for _ in range(random.randint(1, 3)):
        first = random.randint(low, high)
        last = random.randint(first, high)
        step = random.randint(1, high - low + 1)
        items.append(random.choice([f"{first}", f"{first}", f"{first}-{last}", f"{first}-{last}/{step}"]))
    return ",".join(items)


def random_expression():
    hours = ["2", "0", "1-3", "23", "0,23", random_field(0, 23, 0.5)]
    return " ".join([
        random_field(0, 59, 0.3), random.choice(hours), random_field(1, 31, 0.8),
        random_field(1, 12, 0.95), random_field(0, 7, 0.8)])


def values(field, low, high):
    """The values that a field allows."""
    found = set()
    for item in field.split(","):
        span, _, step = item.partition("/")
        first, _, last = (f"{low}-{high}" if span == "*" else span).partition("-")
        found.update(range(int(first), int(last or first) + 1, int(step or 1)))
    return found


def matcher(expression):
    fields = expression.split()
    minutes, hours, days, months, weekdays = (
        values(field, low, high) for field, (low, high) in zip(fields, RANGES))
    either = fields[2][0] != "*" and fields[4][0] != "*"

    def matches(local):
        weekday = local.isoweekday()
        by_day = local.day in days
        by_weekday = weekday in weekdays or weekday == 7 and 0 in weekdays
        return (local.minute in minutes and local.hour in hours and local.month in months
                and (by_day or by_weekday if either else by_day and by_weekday))
    return matches


@functools.lru_cache(maxsize=None)
def local_minutes(zone, start, end):
    """Every minute on the wall clock, with the instants at which it shows: none, one or two."""
    instants = {}
    at = start
    while at < end:
        local = at.astimezone(zoneinfo.ZoneInfo(zone)).replace(tzinfo=None)
        instants.setdefault(local, []).append(at)
        at += MINUTE
    first = min(instants)
    count = (max(instants) - first) // MINUTE + 1
    return [(local, instants.get(local, [])) for local in (first + n * MINUTE for n in range(count))]


def ticks(expression, zone, gap, fold, start, end):
    fields = expression.split()
    is_interval = fields[0][0] == "*" or fields[1][0] == "*"
    matches = matcher(expression)
    found = set()
    left_out = False  # a time that matches is in the gap that ends here
    for local, instants in local_minutes(zone, start, end):
        if not instants:
            left_out = left_out or matches(local)
            continue
        if left_out and gap == "after" and not is_interval:
            found.add(instants[0])
        left_out = False
        if matches(local):
            if is_interval or fold == "both":
                found.update(instants)
            else:
                found.add(instants[0] if fold == "first" else instants[-1])
    return sorted(found)


def random_case():
    """Expression, zone, gap, fold, an instant, and the first tick after it."""
    while True:
        zone, start, end = random.choice(WINDOWS)
        start, end = (datetime.datetime.fromisoformat(t).replace(tzinfo=datetime.timezone.utc)
                      for t in (start, end))
        expression = random_expression()
        gap = random.choice(["after", "skip"])
        fold = random.choice(["first", "last", "both"])
        found = ticks(expression, zone, gap, fold, start, end)
        after = start + (end - start) * random.random()
        if len(found) > 1 and random.random() < 0.6:
            after = random.choice(found[:-1])
        later = [tick for tick in found if tick > after]
        if later:
            return expression, zone, gap, fold, after.isoformat(), later[0].isoformat()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--count", type=int, default=1000)
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    rows = "".join("\t".join(random_case()) + "\n" for _ in range(arguments.count))
    result = subprocess.run(
        ["psql", "-qXAt", "-v", "ON_ERROR_STOP=1"], text=True, stdout=subprocess.PIPE, check=True,
        input="set timezone = 'America/New_York';\n"
        "create temp table c (cron text, zone text, gap text, fold text, after timestamptz,"
        " expected timestamptz);\n"
        f"copy c from stdin;\n{rows}\\.\n"
        "select * from (select c.*, outbox.cron_next(cron, after, zone, gap, fold) as found from c) t"
        " where found is distinct from expected;\n")
    print(f"seed {arguments.seed}: {arguments.count} expressions")
    print(result.stdout, end="")
    return 1 if result.stdout else 0


if __name__ == "__main__":
    sys.exit(main())
