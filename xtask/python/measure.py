"""Runs a command and prints what it took as JSON: wall and CPU seconds, peak resident bytes, and what it printed.

    measure.py COMMAND [ARGUMENT ...]
"""
import json
import resource
import subprocess
import sys
import time

started = time.monotonic()
done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, check=False)
seconds = time.monotonic() - started
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({
    "seconds": seconds,
    "cpu_seconds": usage.ru_utime + usage.ru_stime,
    "peak_bytes": usage.ru_maxrss * 1024,
    "output": done.stdout.decode(),
}))
sys.exit(done.returncode)
