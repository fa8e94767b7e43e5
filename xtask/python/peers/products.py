"""Operations per second of a product of two fp32 matrices by numpy (OpenBLAS) and torch, as JSON: the best of a few."""
import json
import time

import numpy as np
import torch

import rounds

SIZE = 2048
ROUNDS = 6


def best(multiply):
    shortest = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        multiply()
        shortest = min(shortest, time.perf_counter() - started)
    return 2 * SIZE**3 / shortest


torch.set_num_threads(rounds.THREADS)
a, b = (np.random.default_rng(seed).random((SIZE, SIZE), dtype=np.float32) for seed in (1, 2))
c, d = torch.from_numpy(a), torch.from_numpy(b)
print(json.dumps({"openblas": best(lambda: a @ b), "torch": best(lambda: c @ d)}))
