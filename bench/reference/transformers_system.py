"""Transformers on the CPU as a system of a benchmark: each line of JSON on stdin is a job, each line on stdout its result.

The recipe is that of the library's own documentation: from_pretrained, generate, SDPA attention, dynamic cache. Lines:

  first line out  {"ready":true,"engine","weight_bytes","load_ms","n_vocab","n_embd","n_layer"}
  in              {"prompts":[[id,...],...],"output":N,"sampling":null|{"temperature","top_k","top_p","seed"}}
  out             {"prefill_ms","decode_wall_ms","step_ms":[...],"tokens":[[id,...],...],"peak_mib","cpu_s"}, or {"error"}

Prompts of a job are one batch and of one length, and the end of generation is ignored. Logs go to stderr.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

import torch  # noqa: E402
import transformers  # noqa: E402

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Clock(transformers.StoppingCriteria):
    """Notes when each step has its tokens, and stops nothing."""

    def __init__(self) -> None:
        self.stamps = [time.perf_counter()]

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor, **kwargs) -> torch.BoolTensor:
        self.stamps.append(time.perf_counter())
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)


class Recipe:
    def __init__(self, folder: Path, dtype: str) -> None:
        begun = time.perf_counter()
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=DTYPES[dtype], attn_implementation="sdpa").eval()
        self.load_ms = ms_since(begun)
        # Answers have the length that was asked.
        self.model.generation_config.eos_token_id = None

    def ready(self) -> dict:
        config = self.model.config
        return {
            "ready": True,
            "engine": f"torch {torch.__version__}, transformers {transformers.__version__}, {torch.backends.cpu.get_cpu_capability()}",
            "weight_bytes": sum(weight.nbytes for weight in self.model.parameters()),
            "load_ms": self.load_ms,
            "n_vocab": config.vocab_size,
            "n_embd": config.hidden_size,
            "n_layer": config.num_hidden_layers,
        }

    def run(self, job: dict) -> dict:
        prompts, output, choice = self._checked(job)
        if choice["do_sample"]:
            torch.manual_seed(choice.pop("seed"))
        cpu = os.times()
        clock = Clock()
        with torch.inference_mode():
            answer = self.model.generate(
                prompts,
                attention_mask=torch.ones_like(prompts),
                min_new_tokens=output,
                max_new_tokens=output,
                stopping_criteria=[clock],
                use_cache=True,
                **choice,
            )
        spent = os.times()
        stamps = [1000 * (stamp - clock.stamps[0]) for stamp in clock.stamps[1:]]
        return {
            "prefill_ms": stamps[0],
            "decode_wall_ms": stamps[-1] - stamps[0],
            "step_ms": [after - before for before, after in zip(stamps, stamps[1:])],
            "tokens": answer[:, prompts.shape[1]:].tolist(),
            "peak_mib": peak_mib(),
            "cpu_s": spent.user + spent.system - cpu.user - cpu.system,
        }

    def _checked(self, job: dict) -> tuple[torch.LongTensor, int, dict]:
        try:
            prompts = torch.tensor(job["prompts"], dtype=torch.long)
            output, sampling = int(job["output"]), job.get("sampling")
            choice = {"do_sample": False} if sampling is None else {
                "do_sample": True,
                "temperature": float(sampling["temperature"]),
                "top_k": int(sampling["top_k"]),
                "top_p": float(sampling["top_p"]),
                "seed": int(sampling["seed"]),
            }
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"no job: {error!r}") from error
        config = self.model.config
        if prompts.dim() != 2 or prompts.numel() == 0:
            raise ValueError("prompts are lists of ids, all of one length")
        if int(prompts.min()) < 0 or int(prompts.max()) >= config.vocab_size:
            raise ValueError(f"ids go from 0 to {config.vocab_size - 1}")
        if output < 1 or prompts.shape[1] + output > config.max_position_embeddings:
            raise ValueError(f"output is from 1 to what the context of {config.max_position_embeddings} leaves")
        return prompts, output, choice


def ms_since(begun: float) -> float:
    return 1000 * (time.perf_counter() - begun)


def peak_mib() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise OSError("no VmHWM in /proc/self/status")


def serve(recipe: Recipe, out) -> None:
    def say(line: dict) -> None:
        print(json.dumps(line, separators=(",", ":")), file=out, flush=True)

    say(recipe.ready())
    for line in sys.stdin:
        try:
            say(recipe.run(json.loads(line)))
        except (ValueError, RuntimeError) as error:
            say({"error": str(error)})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="folder with model.safetensors and config.json")
    parser.add_argument("--dtype", choices=DTYPES, required=True)
    parser.add_argument("--threads", type=int, required=True)
    args = parser.parse_args()
    # What a library prints must not come between the lines.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(args.threads)
    torch.set_num_interop_threads(1)
    transformers.logging.disable_progress_bar()
    try:
        recipe = Recipe(args.model, args.dtype)
    except (OSError, ValueError) as error:
        print(f"transformers_system: {error}", file=sys.stderr)
        return 1
    serve(recipe, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
