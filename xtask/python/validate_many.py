"""Validates many packages in one process family, because importing coremltools takes seconds.

    validate_many.py VALIDATOR < paths > verdicts

VALIDATOR is the path of validate_mlpackage.py. Reads one package path per line and writes one JSON object per
package, in the same order: {"path", "violations": [{"check", "where", "message"}, ...]}.
"""
import argparse
import importlib.util
import json
import multiprocessing
import sys

WORKERS = 2
OPTIONS = argparse.Namespace(
    light=False, no_instantiate=False, max_instances=128, allow_int64=False, loose_symbols=False
)


def load_validator(path):
    global validator
    spec = importlib.util.spec_from_file_location("validate_mlpackage", path)
    validator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(validator)


def validate(path):
    try:
        violations = validator.validate(path, OPTIONS).violations
    except Exception as error:  # a crash of the validator must not look like a pass
        violations = [{"check": "validator", "where": "crash", "message": f"{type(error).__name__}: {error}"}]
    return {"path": path, "violations": violations}


def main():
    paths = [line.rstrip("\n") for line in sys.stdin if line.strip()]
    with multiprocessing.Pool(WORKERS, load_validator, (sys.argv[1],)) as pool:
        for verdict in pool.imap(validate, paths, chunksize=8):
            print(json.dumps(verdict), flush=True)


if __name__ == "__main__":
    main()
