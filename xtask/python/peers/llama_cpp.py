"""llama.cpp for `cargo xtask bench peers` and `bench quality`, through its C interface.

    llama_cpp.py convert    LIBRARIES SOURCE.gguf TARGET.gguf TYPE
    llama_cpp.py round      LIBRARIES MODEL.gguf WORKLOAD.json
    llama_cpp.py perplexity LIBRARIES MODEL.gguf TOKENS.json

Structures are passed as blocks that are larger than they are in any version. The few fields that are set stand at the
front, and what was set is read back through functions.
"""
import collections
import ctypes
import glob
import json
import os
import sys

import numpy as np

import rounds

# Numbers of `enum llama_ftype`, for every matrix alike.
TYPES = {"F16": 1, "Q8_0": 7, "Q4_0": 2}
# As llama.cpp mixes them itself: the head is wider, and what no super-block of 256 divides has another type.
MIXED = {"Q4_0_mixed": 2, "Q4_K_S": 14, "Q4_K_M": 15}
BLOCK_BYTES = 1024


class Block(ctypes.Structure):
    """Parameters by value: the callee reads as much of it as it knows."""

    _fields_ = [("words", ctypes.c_int32 * (BLOCK_BYTES // 4))]

    def byte(self, at, value):
        (ctypes.c_uint8 * BLOCK_BYTES).from_buffer(self)[at] = value

    def starts_with(self, *words):
        if tuple(self.words[: len(words)]) != words:
            sys.exit(f"defaults are {list(self.words[: len(words)])}, expected {list(words)}: another version's layout")


class Batch(ctypes.Structure):
    _fields_ = [
        ("n_tokens", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in ("token", "embd", "pos", "n_seq_id", "seq_id", "logits")),
    ]


def library(folder, name):
    found = sorted(glob.glob(os.path.join(folder, name)))
    if len(found) != 1:
        sys.exit(f"{folder} has {len(found)} files {name}, expected 1")
    return ctypes.CDLL(found[0], mode=ctypes.RTLD_GLOBAL)


def mapped(part):
    """The path of a library that was loaded by another."""
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if part in line}
    if len(paths) != 1:
        sys.exit(f"{sorted(paths)} are loaded, expected one {part}")
    return paths.pop()


class Engine:
    def __init__(self, folder):
        self.base = library(folder, "libggml-base*.so")
        ggml = library(folder, "libggml[.]*so")
        self.llama = library(folder, "libllama[.]*so")
        self.silence = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
        self.llama.llama_log_set(self.silence, None)
        self.llama.llama_backend_init()
        ggml.ggml_backend_load_all_from_path(os.fsencode(folder))
        self.processor = ctypes.CDLL(mapped("libggml-cpu"))
        for name in ("llama_model_load_from_file", "llama_init_from_model", "llama_get_memory", "llama_model_get_vocab"):
            getattr(self.llama, name).restype = ctypes.c_void_p
        self.llama.llama_get_logits_ith.restype = ctypes.POINTER(ctypes.c_float)
        self.llama.llama_batch_get_one.restype = Batch
        self.llama.llama_batch_init.restype = Batch
        self.llama.llama_batch_free.argtypes = [Batch]
        self.llama.llama_decode.argtypes = [ctypes.c_void_p, Batch]

    def defaults(self, of):
        make = getattr(self.llama, f"{of}_default_params")
        make.restype = Block
        return make()


class Model:
    def __init__(self, engine, path, longest):
        self.engine = engine
        self.llama = llama = engine.llama
        parameters = engine.defaults("llama_model")
        self.model = ctypes.c_void_p(llama.llama_model_load_from_file(os.fsencode(path), parameters))
        if not self.model:
            sys.exit(f"llama.cpp does not load {path}")
        parameters = engine.defaults("llama_context")
        parameters.starts_with(512, 2048, 512, 1)
        parameters.words[0] = parameters.words[1] = longest
        self.context = ctypes.c_void_p(llama.llama_init_from_model(self.model, parameters))
        if not self.context:
            sys.exit("llama.cpp makes no context")
        self.use_threads()
        read = [getattr(llama, f"llama_{name}")(self.context) for name in ("n_ctx", "n_batch", "n_ubatch", "n_threads")]
        if read != [longest, longest, min(512, longest), rounds.THREADS]:
            sys.exit(f"context, batches and threads are {read}")
        self.vocabulary = llama.llama_vocab_n_tokens(ctypes.c_void_p(llama.llama_model_get_vocab(self.model)))

    def use_threads(self):
        """Threads that stay, as llama.cpp's own programs have them."""
        make = self.engine.base.ggml_threadpool_params_default
        make.restype = Block
        parameters = make(rounds.THREADS)
        start = self.engine.processor.ggml_threadpool_new
        start.restype = ctypes.c_void_p
        pool = ctypes.c_void_p(start(ctypes.byref(parameters)))
        if not pool:
            sys.exit("llama.cpp starts no threads")
        self.llama.llama_attach_threadpool(self.context, pool, pool)
        self.llama.llama_set_n_threads(self.context, rounds.THREADS, rounds.THREADS)

    def next(self, ids):
        tokens = (ctypes.c_int32 * len(ids))(*ids)
        batch = self.llama.llama_batch_get_one(tokens, len(ids))
        status = self.llama.llama_decode(self.context, batch)
        if status != 0:
            sys.exit(f"llama_decode gives {status}")
        logits = self.llama.llama_get_logits_ith(self.context, -1)
        return int(np.ctypeslib.as_array(logits, (self.vocabulary,)).argmax())

    def score(self, ids, first):
        """Nats of the tokens from `first` on, each by the logits before it."""
        given = ids[:-1]
        batch = self.llama.llama_batch_init(len(given), 0, 1)
        fields = [("token", ctypes.c_int32), ("pos", ctypes.c_int32), ("n_seq_id", ctypes.c_int32),
                  ("seq_id", ctypes.POINTER(ctypes.c_int32)), ("logits", ctypes.c_int8)]
        token, pos, count, sequence, wanted = (
            ctypes.cast(getattr(batch, name), ctypes.POINTER(kind)) for name, kind in fields
        )
        for at, given_id in enumerate(given):
            token[at], pos[at], count[at], wanted[at] = given_id, at, 1, int(at + 1 >= first)
            sequence[at][0] = 0
        batch.n_tokens = len(given)
        status = self.llama.llama_decode(self.context, batch)
        if status != 0:
            sys.exit(f"llama_decode gives {status}")
        nats = 0.0
        for at in range(first - 1, len(given)):
            pointer = self.llama.llama_get_logits_ith(self.context, at)
            logits = np.ctypeslib.as_array(pointer, (self.vocabulary,)).astype(np.float64)
            most = logits.max()
            nats += most + np.log(np.exp(logits - most).sum()) - logits[ids[at + 1]]
        self.llama.llama_batch_free(batch)
        return nats

    def forget(self):
        self.llama.llama_memory_clear(ctypes.c_void_p(self.llama.llama_get_memory(self.context)), True)


def convert(engine, source, target, name):
    """Every matrix in the one type, norms in F32; or as llama.cpp mixes types."""
    parameters = engine.defaults("llama_model_quantize")
    allow_again, pure = 16, 19
    is_pure = name in TYPES
    parameters.words[0], parameters.words[1] = rounds.THREADS, TYPES[name] if is_pure else MIXED[name]
    parameters.byte(allow_again, 1)
    parameters.byte(pure, int(is_pure))
    unfinished = f"{target}.part"
    status = engine.llama.llama_model_quantize(os.fsencode(source), os.fsencode(unfinished), ctypes.byref(parameters))
    if status != 0:
        sys.exit(f"llama_model_quantize gives {status}")
    from gguf import GGUFReader

    types = collections.Counter(tensor.tensor_type.name for tensor in GGUFReader(unfinished).tensors)
    if is_pure and (set(types) != {name, "F32"} or types["F32"] > types[name]):
        sys.exit(f"{target} was to be {name} and holds {dict(types)}")
    os.replace(unfinished, target)


def perplexity(engine, path, file):
    """As `anemeter eval` scores a text: windows overlap by half, and each token but the first is scored once."""
    with open(file) as text:
        workload = json.load(text)
    ids, length = workload["ids"], workload["window"]
    half = length // 2
    model = Model(engine, path, length)
    windows, start = [(0, min(len(ids), length), 1)], length - half
    while start + half < len(ids):
        windows.append((start, min(len(ids), start + length), half))
        start += length - half
    nats, tokens = 0.0, 0
    for start, end, first in windows:
        model.forget()
        nats += model.score(ids[start:end], first)
        tokens += end - start - first
    print(json.dumps({"tokens": tokens, "nats": float(nats)}))


def main():
    task, folder, *rest = sys.argv[1:]
    engine = Engine(folder)
    if task == "convert":
        convert(engine, *rest)
    elif task == "perplexity":
        perplexity(engine, *rest)
    else:
        rounds.run(lambda longest: Model(engine, rest[0], longest))


main()
