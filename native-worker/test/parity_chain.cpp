#include "parity_chain.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

namespace meshnet {

Status Chain::Load(const ShardParams & params, int32_t n_layer, const std::vector<int32_t> & cuts,
                   const std::string & sparse_dir, std::unique_ptr<Chain> * out) {
  auto chain = std::make_unique<Chain>();
  std::vector<int32_t> edges = {0};
  edges.insert(edges.end(), cuts.begin(), cuts.end());
  edges.push_back(n_layer);
  for (size_t i = 0; i + 1 < edges.size(); i++) {
    ShardParams p = params;
    p.layer_first = edges[i];
    p.layer_last = edges[i + 1];
    if (!sparse_dir.empty()) {
      p.model_path = sparse_dir + "/sparse-" + std::to_string(edges[i]) + "-" + std::to_string(edges[i + 1]) + ".gguf";
      if (Status s = WriteSparse(params.model_path, p.model_path, edges[i], edges[i + 1], n_layer); !s.ok()) return s;
    }
    std::unique_ptr<Shard> shard;
    const Status loaded = Shard::Load(p, &shard);
    if (!sparse_dir.empty()) std::filesystem::remove(p.model_path);
    if (!loaded.ok()) return loaded;
    chain->shards_.push_back(std::move(shard));
  }
  *out = std::move(chain);
  return Status::Ok();
}

// Sequence ids are each worker's own affair, so every shard uses other ones.
int32_t Chain::LocalSeq(size_t shard, int32_t seq) const {
  return (seq + static_cast<int32_t>(shard)) % static_cast<int32_t>(shards_[shard]->info().n_seq_max);
}

Status Chain::Decode(const std::vector<Row> & rows, Fault fault) {
  const float * boundary = nullptr;
  for (size_t k = 0; k < shards_.size(); k++) {
    std::vector<Row> local = rows;
    for (Row & row : local) row.seq = LocalSeq(k, row.seq);
    if (fault == Fault::kSwapSeq && k + 1 == shards_.size() && local.size() > 1 && local[0].seq != local[1].seq) {
      std::swap(local[0].seq, local[1].seq);
      std::swap(local[0].pos, local[1].pos);
    }
    if (Status s = shards_[k]->Decode(local, boundary); !s.ok()) return s;
    boundary = shards_[k]->boundary_out();
  }
  return Status::Ok();
}

void Chain::Replay(const Script & script, Fault fault, Difference * d) {
  const Shard & tail = *shards_.back();
  const auto n_vocab = static_cast<size_t>(tail.info().n_vocab);
  for (const Op & op : script.ops) {
    if (const auto * clear = std::get_if<ClearOp>(&op)) {
      const size_t n = shards_.size() - (fault == Fault::kSkipClear ? 1 : 0);
      for (size_t k = 0; k < n; k++) shards_[k]->Clear(LocalSeq(k, clear->seq));
      continue;
    }
    if (const auto * cut = std::get_if<TruncateOp>(&op)) {
      for (size_t k = 0; k < shards_.size(); k++) {
        if (Status s = shards_[k]->Truncate(LocalSeq(k, cut->seq), cut->pos); !s.ok()) {
          d->n_different++;
          d->first = s.message();
          return;
        }
      }
      continue;
    }
    const auto & decode = std::get<DecodeOp>(op);
    if (Status s = Decode(decode.rows, fault); !s.ok()) {
      d->n_different++;
      if (d->first.empty()) d->first = s.message();
      return;
    }
    size_t wanted = 0;
    for (size_t i = 0; i < decode.rows.size(); i++) {
      if (!decode.rows[i].want_logits) continue;
      const float * expected = decode.logits[wanted++].data();
      const float * actual = tail.logits(i);
      d->n_rows++;
      if (actual != nullptr && std::memcmp(expected, actual, n_vocab * sizeof(float)) == 0) continue;
      d->n_different++;
      if (d->first.empty()) {
        d->first = "sequence " + std::to_string(decode.rows[i].seq) + " at " + std::to_string(decode.rows[i].pos);
      }
      for (size_t v = 0; actual != nullptr && v < n_vocab; v++) d->max_abs = std::max(d->max_abs, std::fabs(expected[v] - actual[v]));
    }
  }
}

}  // namespace meshnet
