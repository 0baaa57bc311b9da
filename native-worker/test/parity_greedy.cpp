#include <cstdio>

#include "../tools/sha256.h"
#include "parity_chain.h"

namespace meshnet {

Status Chain::Greedy(std::vector<int32_t> prompt, int32_t n_predict) {
  const Shard & tail = *shards_.back();
  const auto row_bytes = static_cast<size_t>(tail.info().n_vocab) * sizeof(float);
  int32_t pos = 0;
  for (int32_t i = 0; i < n_predict; i++) {
    const size_t step = tail.info().n_ubatch;
    size_t n_last = 0;
    for (size_t at = 0; at < prompt.size(); at += step) {
      std::vector<Row> rows;
      for (size_t k = at; k < prompt.size() && k < at + step; k++) rows.push_back({prompt[k], pos++, 0, false});
      rows.back().want_logits = at + step >= prompt.size();
      n_last = rows.size();
      if (Status s = Decode(rows, Fault::kNone); !s.ok()) return s;
    }
    const float * logits = tail.logits(n_last - 1);
    const int32_t token = Argmax(logits, tail.info().n_vocab);
    Sha256 digest;
    digest.Add(logits, row_bytes);
    std::printf("{\"pos\":%d,\"token\":%d,\"sha256\":\"%s\"}\n", pos - 1, token, digest.Hex().c_str());
    prompt.assign(1, token);
  }
  return Status::Ok();
}

}  // namespace meshnet
