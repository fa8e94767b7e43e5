"""Runs a command and prints what it took as JSON: wall and CPU seconds and peak resident bytes.

    measure.py COMMAND [ARGUMENT ...]
"""
import json
import resource
import subprocess
import sys
import time

started = time.monotonic()
status = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
seconds = time.monotonic() - started
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
if status:
    sys.exit(status)
print(json.dumps({"seconds": seconds, "cpu_seconds": usage.ru_utime + usage.ru_stime, "peak_bytes": usage.ru_maxrss * 1024}))
