"""Stream handlers in Python: import this file, which lies beside the handler, and call run().

    import outbox_stream
    outbox_stream.run(lambda job: {"sent": send(job["payload"])})

What it returns is the response, and None is none; what it raises makes the job tried again. To
say more, it returns or raises an Outcome. print() goes to the log.
"""
import json
import os
import sys
import time
import traceback

MOST_SECONDS = 0.01  # that a finished answer waits for others


class Outcome(Exception):
    """Outcome("retry", code="busy", after="60s"), or fail, cancel (reason=…), ok (commit=…)."""

    def __init__(self, outcome, **members):
        self.members = dict(members, outcome=outcome)


def _answer(handle, line):
    job = json.loads(line)
    try:
        result = handle(job)
    except Outcome as outcome:
        result = outcome
    except Exception:
        result = Outcome("retry", code="exception", error=traceback.format_exc())
    if result is None:
        return b'{"id":"%s"}\n' % job["id"].encode()
    members = result.members if isinstance(result, Outcome) else {"response": result}
    return json.dumps(dict(members, id=job["id"])).encode() + b"\n"


def _write(fd, answers):
    rest = memoryview(b"".join(answers))
    while rest:
        rest = rest[os.write(fd, rest):]


def run(handle):
    """Calls handle(job) for each job until there are no more."""
    out = os.dup(1)
    os.dup2(2, 1)  # what others print must not come between the answers
    sys.stdout.reconfigure(line_buffering=True)
    held = b""
    while chunk := os.read(0, 1 << 16):
        *lines, held = (held + chunk).split(b"\n")
        answers, written = [], time.monotonic()
        for line in lines:
            answers.append(_answer(handle, line))
            if time.monotonic() - written > MOST_SECONDS:
                _write(out, answers)
                answers, written = [], time.monotonic()
        _write(out, answers)
