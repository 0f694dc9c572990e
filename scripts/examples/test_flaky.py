"""Tests a handler in pytest, retries an hour apart and all: ../pg-temp run pytest test_flaky.py"""
import json
import pathlib
import subprocess


def outbox(*arguments):
    return subprocess.run(["outbox", *arguments], stdout=subprocess.PIPE,
                          cwd=pathlib.Path(__file__).parent).stdout


def test_it_succeeds_in_the_end_or_gives_up():
    outbox("migrate")
    outbox("enqueue", "flaky", '{"fail_times": 2}')
    counts = json.loads(outbox("drain", "--skip-ahead", "--json"))
    assert (counts["succeeded"], counts["attempts"]) == (1, 3)
    outbox("enqueue", "flaky", '{"fail_times": 9}')
    assert json.loads(outbox("drain", "--skip-ahead", "--json"))["dead"] == 1
