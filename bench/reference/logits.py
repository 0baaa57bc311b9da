"""Writes the logits that Transformers gives for sequences of token ids, teacher-forced and in float32.

NAME.f32 holds little-endian float32 numbers without a header, [rows, n_vocab], rows of a sequence one after another: row k
are the logits behind its ids 0..k. Every sequence starts at position 0 and sees only itself. NAME.json says what they are.
"""

import argparse
import json
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

import torch  # noqa: E402
import transformers  # noqa: E402

VERSIONS = {"torch": torch.__version__, "transformers": transformers.__version__}


def sequences_of(document: dict) -> list[dict]:
    """Name and ids of what stands under `texts` or `sequences`."""
    entries = document.get("texts") or document.get("sequences") or []
    if not entries or not all(entry.get("ids") for entry in entries):
        raise ValueError("no sequences, or one without ids")
    return [{"name": entry["name"], "ids": entry["ids"]} for entry in entries]


def write_logits(folder: Path, sequences: list[dict], out: Path, about: dict | None = None) -> None:
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
    rows = 0
    with open(f"{out}.f32", "wb") as file, torch.inference_mode():
        for sequence in sequences:
            logits = model(torch.tensor([sequence["ids"]]), use_cache=False).logits[0]
            file.write(logits.numpy().astype("<f4", copy=False).tobytes())
            rows += len(logits)
    document = {**(about or {}), "versions": VERSIONS, "n_vocab": model.config.vocab_size, "rows": rows, "sequences": sequences}
    Path(f"{out}.json").write_text(json.dumps(document, separators=(",", ":")) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="folder with model.safetensors and config.json")
    parser.add_argument("--sequences", type=Path, required=True, help="JSON with texts or sequences, each with name and ids")
    parser.add_argument("--out", type=Path, required=True, metavar="NAME", help="writes NAME.f32 and NAME.json")
    parser.add_argument("--threads", type=int, help="default: as many as cores")
    args = parser.parse_args()
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    try:
        write_logits(args.model, sequences_of(json.loads(args.sequences.read_text())), args.out)
    except (OSError, ValueError) as error:
        print(f"logits: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
