"""Makes fixtures/ again: logits of Transformers for small generated models, which the worker is held against on every test run."""

import hashlib
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from convert import convert, different_tensors
from logits import write_logits

HERE = Path(__file__).parent
GENERATOR = HERE.parent.parent / "native-worker/build/bin/meshnet-testmodel"

SHARED = {"type": "f32", "vocab": "llama-spm", "vocab-size": "384"}
MODELS = {
    "tied": {**SHARED, "tied": "yes", "layers": "3", "embd": "128", "heads": "4", "kv-heads": "2", "ffn": "256", "seed": "1"},
    "untied": {
        **SHARED, "tied": "no", "layers": "3", "embd": "192", "heads": "6", "kv-heads": "2", "ffn": "320", "rope-base": "100000", "seed": "2",
    },
}
# One that fills a batch of the worker's tiled attention, and one for decoding by the token.
LENGTHS = (96, 16)


def sequences(seed: str) -> list[dict]:
    generator = random.Random(seed)
    return [
        {"name": f"{length} ids", "ids": [1] + [generator.randrange(3, int(SHARED["vocab-size"])) for _ in range(length - 1)]}
        for length in LENGTHS
    ]


def make(name: str, options: dict[str, str], scratch: Path) -> None:
    gguf, folder = scratch / f"{name}.gguf", scratch / name
    arguments = [part for option, value in options.items() for part in (f"--{option}", value)]
    subprocess.run([GENERATOR, "--out", gguf, *arguments], check=True)
    convert(gguf, folder, "float32")
    if different_tensors(gguf, folder):
        raise ValueError(f"{name}: the converted weights are others")
    about = {"generator": options, "gguf_sha256": hashlib.sha256(gguf.read_bytes()).hexdigest()}
    write_logits(folder, sequences(name), HERE / "fixtures" / name, about)


def main() -> int:
    (HERE / "fixtures").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for name, options in MODELS.items():
            make(name, options, Path(scratch))
    return 0


if __name__ == "__main__":
    sys.exit(main())
