#!/usr/bin/env python3
"""A stream handler that does nothing: takes what there is, answers it with one write."""

import json
import os

held = b""
while chunk := os.read(0, 1 << 18):
    *lines, held = (held + chunk).split(b"\n")
    answers = [
        json.dumps({"id": json.loads(line)["id"], "outcome": "ok"}) for line in lines
    ]
    if answers:
        answer = memoryview(("\n".join(answers) + "\n").encode())
        while answer:
            answer = answer[os.write(1, answer) :]
