"""Tokenizes texts as SmolLM2 does, with the vocabulary of its GGUF file.

    smollm2_tokens.py GGUF > cases

Writes one JSON object per line: {"text", "ids"}. The tokenizer is put together from the parts that SmolLM2's own
tokenizer.json names: single digits are cut off, then GPT-2's byte-level rule applies. transformers, which reads the
file itself but does not cut digits, must agree wherever a text has none.
"""
import json
import os
import pathlib
import random
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import gguf  # noqa: E402
import transformers  # noqa: E402
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers  # noqa: E402

CONTROL = 3
RANDOM_TEXTS = 140

FIXED = [
    "",
    " ",
    "  ",
    "\n",
    "\t\t",
    " \n \n  x",
    "Hello, world!",
    "hello  world   again    and     again",
    "trailing spaces   ",
    "   leading spaces",
    "don't you're I've I'm he'll she'd it's DON'T YOU'RE",
    "'s 'S ''ll",
    "0",
    "1234567890",
    "a1b22c333",
    "  42  007   ",
    "3.14159, 2,718 and -1e-9",
    "½ ² Ⅷ ٣ ४ 五 ⑤",
    "x = [1, 2, 3]\n\n\ty += x[0]  # comment\n",
    "def f(a, b):\n    return a**b  # 2\n\n\nclass A:\n        pass\n",
    "fn main() {\n\tprintln!(\"{:?}\", vec![0u8; 16]);\n}\n",
    "<div class=\"a b\">&nbsp;&lt;</div>",
    "SELECT * FROM t WHERE id=10 AND name='O''Hara';",
    "{\"key\": [null, true, 1.5e+10], \"k2\": \"v\\n\"}",
    "https:" + "//example.org/path?q=1&r=%20#frag",
    "ÄÖÜ äöü ß ñ ç é è ê",
    "e\u0301 versus \u00e9, \u1e9b\u0323",
    "Привет, мир! Ещё раз.",
    "你好，世界。今天是2024年12月31日。",
    "こんにちは世界、ｶﾀｶﾅ",
    "안녕하세요 세계",
    "مرحبا بالعالم",
    "שלום עולם",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    "👍🏽 👩‍👩‍👧‍👦 🇩🇪 ☕️",
    "∀x∈ℝ: ⌈x⌉ = −⌊−x⌋ ≠ ∅",
    "\u00a0non\u2009breaking\u3000spaces\u2028line",
    "zero\u200bwidth\ufeffjoined\u200d",
    "control \x00\x01\x7f characters",
    "\r\n\r\nwindows\r\nlines\r",
    "a" * 100,
    " " * 50 + "x" + "\n" * 20,
    "!!!???...---===###",
    "(((nested) brackets) here)",
    "CamelCaseIdentifier snake_case_identifier SCREAMING_CASE",
    "<|im_start|>user\nWhat is 2+2?<|im_end|>\n<|im_start|>assistant\n",
    "<|endoftext|>text<|endoftext|>",
    "<|im_start|><|im_end|>",
    " <|im_start|> spaced <|im_end|> ",
    "<|im_start |> <|im_star <im_start>",
    "<repo_name>r<file_sep>f<filename>",
    "<gh_stars><issue_start><jupyter_code>1<empty_output>",
    "The quick brown fox jumps over the lazy dog.",
    "It was the best of times, it was the worst of times, it was the age of wisdom...",
    "once upon a midnight dreary, while I pondered, weak and weary",
    "\ud7ff\ue000\ufffd\U0010ffff",
    "ﬁ ligature, ① ㎏ ™",
    "i̇ İ ı I",
    "mixed123abc456 789def 0xDEADBEEF 1_000_000",
]


def noise(generator):
    """Pieces of many sorts one after the other."""
    ranges = [(0x20, 0x7E), (0x20, 0x7E), (0x30, 0x39), (0xA0, 0x24F), (0x370, 0x5FF), (0x900, 0xDFF)]
    ranges += [(0x2000, 0x2BFF), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x1F300, 0x1FAFF)]
    words = ["the", " model", " of", "ing", "'s", "\n", "\n\n", "    ", "\t", " 2", "10", " ", "<|im_end|>", "();"]
    text = ""
    for _ in range(generator.randrange(1, 24)):
        if generator.random() < 0.6:
            text += generator.choice(words)
        else:
            low, high = generator.choice(ranges)
            text += "".join(chr(generator.randint(low, high)) for _ in range(generator.randrange(1, 5)))
    return text


def tokenizer(fields):
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
    built = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    built.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    built.decoder = decoders.ByteLevel()
    kinds = fields["tokenizer.ggml.token_type"].contents()
    special = [token for token, kind in zip(tokens, kinds) if kind == CONTROL]
    built.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    return built


def main():
    path = pathlib.Path(sys.argv[1])
    fields = gguf.GGUFReader(path).fields
    if fields["tokenizer.ggml.add_bos_token"].contents():
        sys.exit("the file puts a token before every text, this script does not")
    expected = tokenizer(fields)
    theirs = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    generator = random.Random(2)
    for text in FIXED + [noise(generator) for _ in range(RANDOM_TEXTS)]:
        ids = expected.encode(text).ids
        if not any(c.isnumeric() for c in text) and theirs(text).input_ids != ids:
            sys.exit(f"transformers makes {theirs(text).input_ids} of {text!r}, not {ids}")
        print(json.dumps({"text": text, "ids": ids}))


if __name__ == "__main__":
    main()
