"""One round of an engine for `cargo xtask bench peers`: load, decode, prefill; what they took as a line of JSON.

`run(load)` calls `load(longest)` for a model with room for so many tokens. A model has `next(ids)`, the likeliest token
after `ids`, which follow what it was given before, and `forget()`. What to do is in the workload file, the last argument
of the program: token ids of a short and a long prompt and a number of tokens to decode, or lengths at which to measure.
"""
import json
import sys
import time

THREADS = 2
# Tokens that are decoded at each length.
STEPS = 16


def peak_bytes():
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    sys.exit("/proc/self/status has no VmHWM")


def timed(call):
    started = time.perf_counter()
    result = call()
    return result, time.perf_counter() - started


def prefilled(model, ids):
    """The next token and the seconds it took. The first call fills caches and pools."""
    for _ in range(2):
        model.forget()
        token, seconds = timed(lambda: model.next(ids))
    return token, seconds


def decoded(model, token, count):
    tokens = [token]
    for _ in range(count):
        tokens.append(model.next(tokens[-1:]))
    return tokens


def usual(load, workload):
    def first():
        model = load(len(workload["long"]))
        return model, model.next(workload["prompt"])

    (model, token), first_seconds = timed(first)
    tokens, decode_seconds = timed(lambda: decoded(model, token, workload["decode"]))
    peak = peak_bytes()
    _, prefill_seconds = prefilled(model, workload["long"])
    return {
        "first_token_seconds": first_seconds,
        "decode_seconds": decode_seconds,
        "prefill_seconds": prefill_seconds,
        "peak_bytes": peak,
        "tokens": tokens,
    }


def growth(load, workload):
    model = load(max(workload["lengths"]))
    points = []
    for length in workload["lengths"]:
        token, prefill_seconds = prefilled(model, workload["long"][: length - STEPS])
        _, seconds = timed(lambda: decoded(model, token, STEPS))
        points.append({"length": length, "decode_seconds": seconds / STEPS, "prefill_seconds": prefill_seconds})
    return {"growth": points}


def run(load):
    with open(sys.argv[-1]) as file:
        workload = json.load(file)
    print(json.dumps((growth if workload.get("lengths") else usual)(load, workload)))
