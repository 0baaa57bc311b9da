// EngineCore::Probe: the same synthetic input for everybody, so that equal shards give equal digests.
#include "lane_bundle.h"
#include "engine_core.h"

namespace meshnet {
namespace {

// In [-1, 1), from a fixed linear congruential generator.
std::vector<float> SyntheticRows(size_t n) {
  std::vector<float> values(n);
  uint32_t state = 1;
  for (float & value : values) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<float>(static_cast<int32_t>(state) >> 8) / static_cast<float>(1 << 23);
  }
  return values;
}

}  // namespace

Status EngineCore::Probe(uint32_t n_tokens, int32_t seq, Engine::ProbeResult * out) {
  const ShardInfo & info = shard_->info();
  const auto width = static_cast<size_t>(info.n_embd);
  std::vector<Row> rows;
  for (uint32_t i = 0; i <= n_tokens; i++) {
    const auto token = static_cast<int32_t>(uint64_t{i} * 7919 % static_cast<uint64_t>(info.n_vocab));
    rows.push_back({.token = token, .pos = static_cast<int32_t>(i), .seq = seq, .want_logits = i + 1 >= n_tokens});
  }
  const std::vector<float> input = info.is_head ? std::vector<float>() : SyntheticRows(rows.size() * width);
  std::vector<float> output;
  const auto run = [&](size_t first, size_t n, uint32_t * took_us) -> Status {
    const uint64_t start = NowUs();
    const float * in = input.empty() ? nullptr : input.data() + first * width;
    if (Status s = shard_->Decode({rows.data() + first, n}, in); !s.ok()) return s;
    *took_us = static_cast<uint32_t>(NowUs() - start);
    const float * result = info.is_tail ? shard_->logits(n - 1) : shard_->boundary_out();
    const size_t size = info.is_tail ? static_cast<size_t>(info.n_vocab) : n * width;
    output.insert(output.end(), result, result + size);
    return {};
  };
  Status status = run(0, n_tokens, &out->prefill_us);
  if (status.ok()) status = run(n_tokens, 1, &out->decode_us);
  sequences_.Clear(seq);
  if (!status.ok()) return status;
  if (!AllFinite(output)) return {Code::kValueInvalid, "the shard's output is not finite"};
  out->output_digest = Sha256(output);
  return {};
}

}  // namespace meshnet
