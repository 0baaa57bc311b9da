"""Writes a Llama GGUF as a folder that Transformers loads: model.safetensors and config.json.

Quantised tensors become the float32 numbers that they stand for, so that both sides of a comparison hold the same weights.
The folder is loaded again and compared with the GGUF to the last bit before the command succeeds.
"""

import argparse
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

import torch  # noqa: E402
from gguf import GGUFReader, dequantize  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from transformers import AutoModelForCausalLM, LlamaConfig  # noqa: E402
from transformers.utils import logging  # noqa: E402

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class UnsupportedError(Exception):
    """The GGUF holds something that this converter would get wrong."""


class Source:
    """A Llama GGUF: its hyperparameters, and its tensors by the names of Transformers."""

    def __init__(self, path: Path) -> None:
        self._reader = GGUFReader(path)
        if self._field("general.architecture") != "llama":
            raise UnsupportedError(f"{path} is no Llama model")
        self._refuse_variants()
        self.n_head = self._number("attention.head_count")
        self.n_head_kv = self._number("attention.head_count_kv", self.n_head)
        self.n_embd = self._number("embedding_length")
        names = {tensor.name for tensor in self._reader.tensors}
        self.tied = "output.weight" not in names
        self.n_vocab = next(int(t.shape[1]) for t in self._reader.tensors if t.name == "token_embd.weight")

    def config(self, dtype: str) -> LlamaConfig:
        return LlamaConfig(
            architectures=["LlamaForCausalLM"],
            dtype=dtype,
            vocab_size=self.n_vocab,
            hidden_size=self.n_embd,
            intermediate_size=self._number("feed_forward_length"),
            num_hidden_layers=self._number("block_count"),
            num_attention_heads=self.n_head,
            num_key_value_heads=self.n_head_kv,
            max_position_embeddings=self._number("context_length"),
            rms_norm_eps=self._number("attention.layer_norm_rms_epsilon"),
            rope_parameters={"rope_type": "default", "rope_theta": float(self._number("rope.freq_base", 10000))},
            tie_word_embeddings=self.tied,
            bos_token_id=self._field("tokenizer.ggml.bos_token_id"),
            eos_token_id=self._field("tokenizer.ggml.eos_token_id"),
            pad_token_id=self._field("tokenizer.ggml.padding_token_id"),
        )

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Every tensor in float32, with the rows of queries and keys as Transformers wants them."""
        for tensor in self._reader.tensors:
            values = torch.tensor(dequantize(tensor.data, tensor.tensor_type))
            if ".attn_q." in tensor.name:
                values = halves_from_pairs(values, self.n_head)
            elif ".attn_k." in tensor.name:
                values = halves_from_pairs(values, self.n_head_kv)
            yield transformers_name(tensor.name), values

    def _refuse_variants(self) -> None:
        heads, width = self._number("attention.head_count"), self._number("embedding_length")
        for key in ("attention.key_length", "attention.value_length", "rope.dimension_count"):
            if self._number(key, width // heads) != width // heads:
                raise UnsupportedError(f"llama.{key} differs from the width of a head")
        if self._field("llama.rope.scaling.type") not in (None, "none") or self._number("expert_count", 0) != 0:
            raise UnsupportedError("scaled RoPE and experts are not converted")

    def _field(self, key: str):
        field = self._reader.get_field(key)
        return None if field is None else field.contents()

    def _number(self, key: str, default=None):
        value = self._field(f"llama.{key}")
        if value is None and default is None:
            raise UnsupportedError(f"llama.{key} is missing")
        return default if value is None else value


def halves_from_pairs(weight: torch.Tensor, n_head: int) -> torch.Tensor:
    """GGUF rotates neighbouring rows of a head, Transformers row i with row i + half: the same rows in another order."""
    rows, columns = weight.shape
    return weight.reshape(n_head, rows // n_head // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


def transformers_name(name: str) -> str:
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.weight", name)
    if match is None or match[2] not in NAMES:
        raise UnsupportedError(f"no place for the tensor {name}")
    layer = "" if match[1] is None else f"model.layers.{match[1]}."
    return f"{layer}{NAMES[match[2]]}.weight"


def convert(gguf: Path, folder: Path, dtype: str) -> None:
    source = Source(gguf)
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: values.to(DTYPES[dtype]) for name, values in source.tensors()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    source.config(dtype).save_pretrained(folder)


def different_tensors(gguf: Path, folder: Path) -> list[str]:
    """Names of the tensors whose bits, loaded by Transformers, are not those of the GGUF rounded to the folder's type."""
    source = Source(gguf)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    loaded = model.state_dict()
    head = loaded.pop("lm_head.weight") if source.tied else None
    embedding = loaded["model.embed_tokens.weight"]
    different = [] if head is None or head.data_ptr() == embedding.data_ptr() else ["lm_head.weight"]
    for name, values in source.tensors():
        actual = loaded.pop(name, None)
        if actual is None or not same_bits(values.to(actual.dtype), actual):
            different.append(name)
    return different + sorted(loaded)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    word = torch.int32 if a.element_size() == 4 else torch.int16
    return a.shape == b.shape and torch.equal(a.view(word), b.view(word))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gguf", type=Path, help="a Llama model in any type that gguf-py reads")
    parser.add_argument("folder", type=Path, help="where model.safetensors and config.json are")
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--check", action="store_true", help="write nothing, compare what is there")
    args = parser.parse_args()
    logging.disable_progress_bar()
    try:
        if not args.check:
            convert(args.gguf, args.folder, args.dtype)
        different = different_tensors(args.gguf, args.folder)
    except (UnsupportedError, OSError, ValueError) as error:
        print(f"convert: {error}", file=sys.stderr)
        return 1
    if different:
        print(f"convert: {len(different)} tensors differ: {', '.join(different[:8])}", file=sys.stderr)
        return 1
    print(f"{args.folder} equals {args.gguf.name} to the last bit", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
