"""Runs a command and prints what it took: CPU seconds, wall seconds and the most memory it had resident."""

import json
import resource
import subprocess
import sys
import time

start = time.monotonic()
done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, check=False)
wall = time.monotonic() - start
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(
    json.dumps(
        {
            "cpu_seconds": usage.ru_utime + usage.ru_stime,
            "wall_seconds": wall,
            "peak_bytes": usage.ru_maxrss * 1024,
            "output": done.stdout.decode(),
        }
    )
)
sys.exit(done.returncode)
