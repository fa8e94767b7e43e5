"""Runs a command and prints what it took as JSON: wall and CPU seconds, peak resident bytes, exit status, and what it
printed. Ends with the command's status, or well with --any-status.

    measure.py [--any-status] COMMAND [ARGUMENT ...]
"""
import json
import resource
import subprocess
import sys
import time

command = sys.argv[1:]
any_status = command[0] == "--any-status"
if any_status:
    command = command[1:]
started = time.monotonic()
done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
seconds = time.monotonic() - started
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({
    "seconds": seconds,
    "cpu_seconds": usage.ru_utime + usage.ru_stime,
    "peak_bytes": usage.ru_maxrss * 1024,
    "status": done.returncode,
    "output": done.stdout.decode(),
}))
sys.exit(0 if any_status else done.returncode)
