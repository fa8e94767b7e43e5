"""Runs language models in the layout of Apple's programs as those do: coreai_llm.py PLAN.json

A plan lists runs: `asset`, `ids`, `chunks` (tokens of each call), `context`, and where its logits go (`logits`). Functions of
fixed sizes get the masks, positions and padding that Apple's engine gives them, and each other's arrays.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

import numpy as np
from coreai.authoring import AIModelAsset
from coreai.runtime import NDArray


def cleared(descriptor):
    """A state of zeros where that can be made: what the module lays out in its own way is not cleared, and cannot be."""
    state = NDArray.from_descriptor(descriptor)
    expected, size = [], 1
    for places in reversed(state.shape):
        expected.insert(0, size)
        size *= places
    is_plain = all(a == b or places == 1 for a, b, places in zip(state.strides, expected, state.shape))
    return NDArray(np.zeros(state.shape, str(descriptor.dtype))) if is_plain else state


async def dynamic(model, run):
    function = model.load_function("main")
    desc = function.desc
    states = {n: cleared(desc.state_descriptor(n)) for n in desc.state_names}
    logits, start = [], 0
    for count in run["chunks"]:
        ids = np.array(run["ids"][start : start + count], np.int32)[None]
        start += count
        inputs = {"input_ids": NDArray(ids), "position_ids": NDArray(np.arange(start, dtype=np.int32)[None])}
        logits.append((await function(inputs, states))["logits"].numpy()[0])
    return np.concatenate(logits)


async def static(model, run):
    context = run["context"]
    table = (await model.load_function("load_embeddings")({}))["embedding_table"]
    states, logits, start = None, [], 0
    for count in run["chunks"]:
        query = min(q for q in (8, 16, 64) if q >= count)
        ids = np.zeros((1, query), np.int32)
        ids[0, :count] = run["ids"][start : start + count]
        gather = model.load_function(f"gather_embeddings_{query}")
        vectors = (await gather({"in_new_token_ids": NDArray(ids), "embedding_table": table}))["gathered_embeddings"]
        # The last calls give logits, the others fill the caches.
        is_last = start + count == len(run["ids"])
        name = "extend" if is_last or not run["fills"] else "prompt_opt"
        function = model.load_function(f"{name}_{context}_{query}")
        desc = function.desc
        states = states or {n: cleared(desc.state_descriptor(n)) for n in desc.state_names}
        rows = start + np.arange(query)
        mask = np.where(np.arange(context)[:, None] <= rows[None], 0, -4e4).reshape(1, context, 1, query)
        dtype = str(desc.input_descriptor("causal_mask").dtype)
        inputs = {
            "transformer_input": vectors,
            "position_ids": NDArray(rows.astype(np.uint16)[None]),
            "in_step": NDArray(np.array([start], np.int32)),
            "causal_mask": NDArray(mask.astype(dtype)),
            "embedding_table": table,
        }
        out = (await function(inputs, states))["out_logits"].numpy()
        start += count
        if name == "extend":
            logits.append(out[0, 0, :count])
    return np.concatenate(logits)


async def main():
    for run in json.loads(Path(sys.argv[1]).read_text()):
        async with AIModelAsset.load(Path(run["asset"])).executable() as model:
            work = dynamic if "main" in model.function_names else static
            found = await work(model, run)
        np.ascontiguousarray(found.astype(np.float32)).tofile(run["logits"])


asyncio.run(main())
# Apple's module ends some processes by a signal while Python takes it down.
sys.stdout.flush()
os._exit(0)
