"""Small random encoders by transformers' own classes against what the program makes of them.

    tiny_encoders.py PROGRAM FOLDER

Each configuration is written as `save_pretrained` writes it to FOLDER/<name>, some with the modules of
sentence-transformers, exported and embedded by PROGRAM at two sequence lengths, with padding and without: in one package
and in two, one text at a time and two, in fp16 and as a twin in fp32. What comes out is compared with transformers in
float32: hidden states of every token, pooled vectors or scores. Everything is seeded by the name. Bundles are
FOLDER/bundles/<name>-<how>. Prints a line per bundle; exits with 1 if a cosine is below the limit, or a score is off.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import warnings
import zlib

os.environ["TQDM_DISABLE"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore")

import tokenizers  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

VOCABULARY = 260
LENGTHS = (16, 40)
# Tokens of the texts: one, few, one less than a length, and all of each.
COUNTS = (1, 6, 15, 16, 40)
# How bundles are made: activations, packages and texts at once; the least cosine and how far a score may be off. fp16
# explains less than that of an angle, and of a score; the weights of a twin are rounded to fp16 as well.
BUNDLES = {
    "fp16": ("fp16", 1, 1, 0.9999, 0.02),
    "fp16-chunks": ("fp16", 2, 2, 0.9999, 0.02),
    "fp32": ("fp32", 1, 2, 0.99999, 0.005),
    "fp32-chunks": ("fp32", 2, 1, 0.99999, 0.005),
}


def bert(**more):
    return {
        "vocab_size": VOCABULARY, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
        "num_attention_heads": 4, "max_position_embeddings": 48, "pad_token_id": 0, **more,
    }


def modernbert(**more):
    return {
        **bert(), "max_position_embeddings": 64, "local_attention": 10, "pad_token_id": 0, "eos_token_id": 1,
        "bos_token_id": 2, "cls_token_id": 2, "sep_token_id": 1, **more,
    }


def causal(**more):
    return {
        "vocab_size": VOCABULARY, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12, "max_position_embeddings": 64, **more,
    }


def gemma(**more):
    return causal(
        query_pre_attn_scalar=10, sliding_window=10, use_bidirectional_attention=True,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"], **more,
    )


T = transformers
# A name: the class, its configuration, and how texts become vectors (a pooling, widths of dense layers, normalisation).
ENCODERS = {
    "bert": (T.BertModel, T.BertConfig(**bert()), None),
    "bert-awkward": (T.BertModel, T.BertConfig(**bert(hidden_size=35, num_attention_heads=5, intermediate_size=51, hidden_act="gelu_new")), ("mean", [], True)),
    "bert-cls": (T.BertModel, T.BertConfig(**bert(type_vocab_size=3)), ("cls", [], True)),
    "bert-masked": (T.BertForMaskedLM, T.BertConfig(**bert()), None),
    "bert-masked-awkward": (T.BertForMaskedLM, T.BertConfig(**bert(hidden_size=36, num_attention_heads=3, intermediate_size=50)), ("mean", [], True)),
    "bert-pretrained": (T.BertForPreTraining, T.BertConfig(**bert()), ("mean", [], True)),
    "bert-pretrained-awkward": (T.BertForPreTraining, T.BertConfig(**bert(hidden_size=33, num_attention_heads=3, intermediate_size=51, hidden_act="relu")), None),
    "bert-scores": (T.BertForSequenceClassification, T.BertConfig(**bert(num_labels=1)), "scores"),
    "bert-scores-3": (T.BertForSequenceClassification, T.BertConfig(**bert(num_labels=3, hidden_act="relu")), "scores"),
    "roberta": (T.RobertaModel, T.RobertaConfig(**bert(pad_token_id=1, type_vocab_size=1)), None),
    "roberta-awkward": (T.RobertaModel, T.RobertaConfig(**bert(pad_token_id=1, type_vocab_size=1, hidden_size=35, num_attention_heads=5, intermediate_size=51)), ("cls", [], True)),
    "roberta-scores": (T.RobertaForSequenceClassification, T.RobertaConfig(**bert(pad_token_id=1, type_vocab_size=1, num_labels=2)), "scores"),
    "roberta-scores-1": (T.RobertaForSequenceClassification, T.RobertaConfig(**bert(pad_token_id=2, type_vocab_size=1, num_labels=1, hidden_size=36, num_attention_heads=3)), "scores"),
    "roberta-masked": (T.RobertaForMaskedLM, T.RobertaConfig(**bert(pad_token_id=1, type_vocab_size=1)), None),
    "roberta-masked-awkward": (T.RobertaForMaskedLM, T.RobertaConfig(**bert(pad_token_id=1, type_vocab_size=1, hidden_size=33, num_attention_heads=3, intermediate_size=51)), ("mean", [], False)),
    "xlm-roberta": (T.XLMRobertaModel, T.XLMRobertaConfig(**bert(pad_token_id=3, type_vocab_size=1, hidden_size=36)), ("mean", [], True)),
    "xlm-roberta-awkward": (T.XLMRobertaModel, T.XLMRobertaConfig(**bert(pad_token_id=1, type_vocab_size=1, hidden_size=35, num_attention_heads=5, intermediate_size=51)), None),
    "xlm-roberta-scores": (T.XLMRobertaForSequenceClassification, T.XLMRobertaConfig(**bert(pad_token_id=1, type_vocab_size=1, num_labels=1)), "scores"),
    "xlm-roberta-scores-3": (T.XLMRobertaForSequenceClassification, T.XLMRobertaConfig(**bert(pad_token_id=1, type_vocab_size=1, num_labels=3, hidden_size=33, num_attention_heads=3)), "scores"),
    "xlm-roberta-masked": (T.XLMRobertaForMaskedLM, T.XLMRobertaConfig(**bert(pad_token_id=1, type_vocab_size=1)), None),
    "xlm-roberta-masked-awkward": (T.XLMRobertaForMaskedLM, T.XLMRobertaConfig(**bert(pad_token_id=2, type_vocab_size=1, hidden_size=35, num_attention_heads=5, intermediate_size=51)), ("cls", [], True)),
    "modernbert": (T.ModernBertModel, T.ModernBertConfig(**modernbert()), None),
    "modernbert-awkward": (T.ModernBertModel, T.ModernBertConfig(**modernbert(hidden_size=54, num_attention_heads=3, intermediate_size=33, local_attention=7, norm_bias=True, attention_bias=True, mlp_bias=True, layer_types=["sliding_attention", "full_attention", "sliding_attention"])), ("cls", [], True)),
    "modernbert-masked": (T.ModernBertForMaskedLM, T.ModernBertConfig(**modernbert()), None),
    "modernbert-masked-awkward": (T.ModernBertForMaskedLM, T.ModernBertConfig(**modernbert(hidden_size=36, num_attention_heads=3, intermediate_size=33, local_attention=6)), ("mean", [], True)),
    "modernbert-scores": (T.ModernBertForSequenceClassification, T.ModernBertConfig(**modernbert(num_labels=2)), "scores"),
    "modernbert-scores-mean": (T.ModernBertForSequenceClassification, T.ModernBertConfig(**modernbert(num_labels=3, classifier_pooling="mean", classifier_bias=True)), "scores"),
    "embedding-gemma": (T.Gemma3TextModel, T.Gemma3TextConfig(**gemma()), ("mean", [96, 48], True)),
    "embedding-gemma-awkward": (T.Gemma3TextModel, T.Gemma3TextConfig(**{**gemma(), "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 10, "sliding_window": 7, "hidden_size": 39}), None),
    "qwen3-embedding": (T.Qwen3Model, T.Qwen3Config(**causal(tie_word_embeddings=True)), ("lasttoken", [], True)),
    "qwen3-embedding-awkward": (T.Qwen3Model, T.Qwen3Config(**causal(num_attention_heads=6, num_key_value_heads=3, head_dim=10, tie_word_embeddings=False)), ("mean", [20], False)),
}


def randomise(model, generator):
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "embeddings" in name and parameter.dim() == 2 or "embed_tokens" in name:
            parameter.data = noise * 0.7
        elif parameter.dim() == 2:
            parameter.data = noise * 1.1 / parameter.shape[1] ** 0.5
        elif name.lower().endswith("norm.weight"):
            parameter.data = noise * 0.3 + (0.0 if "Gemma3" in type(model).__name__ else 1.0)
        else:
            parameter.data = noise * 0.3


def write_tokenizer(folder):
    """A word per token, so that texts are the tokens that are wanted and several are embedded at once."""
    words = {f"t{token}": token for token in range(VOCABULARY)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="t3"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))


def write_modules(folder, width, how, generator):
    """`modules.json` and its folders; gives the weights of the dense layers."""
    pooling, widths, normalize = how
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling")]
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text(json.dumps({"embedding_dimension": width, "pooling_mode": pooling}))
    dense = []
    for number, out in enumerate(widths):
        path = f"{number + 2}_Dense"
        kinds.append((path, "Dense"))
        (folder / path).mkdir()
        config = {"in_features": width, "out_features": out, "bias": False,
                  "activation_function": "torch.nn.modules.linear.Identity"}
        (folder / path / "config.json").write_text(json.dumps(config))
        dense.append(torch.randn(out, width, generator=generator) / width**0.5)
        save_file({"linear.weight": dense[-1]}, folder / path / "model.safetensors")
        width = out
    if normalize:
        kinds.append((f"{len(widths) + 2}_Normalize", "Normalize"))
    modules = [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
               for i, (path, kind) in enumerate(kinds)]
    (folder / "modules.json").write_text(json.dumps(modules))
    return dense


def expected(model, how, dense, ids):
    """What transformers computes of one text without padding."""
    with torch.no_grad():
        out = model(input_ids=ids[None], attention_mask=torch.ones_like(ids)[None], output_hidden_states=True)
    if how == "scores":
        return out.logits.float()
    states = out.last_hidden_state[0] if hasattr(out, "last_hidden_state") else last_state(model, ids)
    if how is None:
        return states.float()
    pooling, _, normalize = how
    x = {"mean": states.mean(0), "cls": states[0], "lasttoken": states[-1]}[pooling]
    for weight in dense:
        x = weight @ x
    return (F.normalize(x, dim=0) if normalize else x)[None].float()


def last_state(model, ids):
    """Of a class that fills in words, the encoder inside it."""
    with torch.no_grad():
        return model.base_model(input_ids=ids[None], attention_mask=torch.ones_like(ids)[None]).last_hidden_state[0]


def run(program, *args):
    done = subprocess.run([program, *map(str, args)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, args))}: {done.stderr}")
    return done.stdout


def write(name, checkpoint):
    """The checkpoint, and texts with what transformers computes of each."""
    kind, config, how = ENCODERS[name]
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    model = kind(config).eval()
    randomise(model, generator)
    model.save_pretrained(checkpoint)
    write_tokenizer(checkpoint)
    if "Gemma3" in kind.__name__:
        # The class halves the key when it is made; published checkpoints have the whole.
        written = json.loads((checkpoint / "config.json").read_text())
        written["sliding_window"] = 2 * (config.sliding_window - 1)
        (checkpoint / "config.json").write_text(json.dumps(written))
    dense = [] if how in (None, "scores") else write_modules(checkpoint, config.hidden_size, how, generator)
    texts = [torch.randint(4, VOCABULARY, (count,), generator=generator) for count in COUNTS]
    return [(ids, expected(model, how, dense, ids)) for ids in texts]


def compare(program, bundle, texts):
    """The least cosine, how far a number is off, and the vectors that were compared, of all texts at every length."""
    least, worst, compared = 1.0, 0.0, 0
    for length in LENGTHS:
        fitting = [(ids, wanted) for ids, wanted in texts if len(ids) <= length]
        file = bundle.with_suffix(".txt")
        file.write_text("".join(" ".join(f"t{token}" for token in ids.tolist()) + "\n" for ids, _ in fitting))
        out = json.loads(run(program, "embed", bundle, "--json", "--seq-len", length, "--file", file))
        for text, (ids, wanted) in zip(out["texts"], fitting, strict=True):
            found = torch.tensor(text["vectors"])
            if text["tokens"] != len(ids) or found.shape != wanted.shape:
                sys.exit(f"{bundle.name}: {text['tokens']} tokens give {tuple(found.shape)} numbers, "
                         f"expected {len(ids)} and {tuple(wanted.shape)}")
            least = min(least, F.cosine_similarity(found.double(), wanted.double(), dim=-1).min().item())
            worst = max(worst, ((found - wanted).abs().max() / wanted.abs().max().clamp(min=1)).item())
            compared += found.shape[0]
    return least, worst, compared


def check(program, folder, name):
    kind, _, how = ENCODERS[name]
    checkpoint = folder / name
    texts = write(name, checkpoint)
    results = []
    for form, (activations, chunks, batch, required, off) in BUNDLES.items():
        bundle = folder / "bundles" / f"{name}-{form}"
        run(program, "export", checkpoint, "-o", bundle, "--shapes", ",".join(map(str, LENGTHS)),
            "--chunks", chunks, "--batch", batch, "--activations", activations)
        least, worst, compared = compare(program, bundle, texts)
        passed = least >= required and (how != "scores" or worst <= off)
        what = "hidden states" if how is None else how if how == "scores" else how[0]
        print(f"{kind.__name__:40} {name:28} {form:12} {what:14} {compared:5} vectors  least cosine {least:.7f}  "
              f"off by {worst:.6f}  {'passed' if passed else 'FAILED'}", flush=True)
        results.append(passed)
    return results


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    only = sys.argv[3:] or list(ENCODERS)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "bundles").mkdir(parents=True)
    results = [passed for name in only for passed in check(program, folder, name)]
    classes = len({ENCODERS[name][0] for name in only})
    print(f"{len(results)} bundles of {len(only)} encoders of {classes} classes, {results.count(False)} failed")
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
