"""Writes the token ids of texts.json again, by the vocabulary of the GGUF that it names."""

import argparse
import json
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

from transformers import AutoTokenizer  # noqa: E402

TEXTS = Path(__file__).parent / "texts.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gguf", type=Path, help="SmolLM2-135M-Instruct in any type")
    args = parser.parse_args()
    document = json.loads(TEXTS.read_text())
    tokenizer = AutoTokenizer.from_pretrained(args.gguf.parent, gguf_file=args.gguf.name)
    lines = []
    for entry in document["texts"]:
        ids = tokenizer(entry["text"], add_special_tokens=False)["input_ids"]
        if tokenizer.decode(ids) != entry["text"]:
            print(f"texts: {entry['name']} does not come back from its ids", file=sys.stderr)
            return 1
        lines.append(json.dumps({**entry, "ids": ids}, separators=(",", ":")))
    model = json.dumps(document["model"])
    TEXTS.write_text(f'{{"model":{model},"texts":[\n' + ",\n".join(lines) + "\n]}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
