// The whole model as the worker holds it: one Shard of all layers.
#include <stdexcept>

#include "whole_model.h"
#include "shard.h"

namespace meshnet::whole {
namespace {

void Check(const Status & status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

class ShardModel : public Model {
 public:
  explicit ShardModel(const Options & o) {
    if (!o.rpc_servers.empty() || !o.kv_unified) {
      throw std::runtime_error("--rpc and --kv split need the build of the unpatched tree");
    }
    ShardParams params;
    params.model_path = o.model_path;
    params.n_threads = o.n_threads;
    params.n_ctx = o.n_cells;
    params.n_seq_max = o.n_sessions;
    params.n_ubatch = o.n_ubatch;
    params.n_logits_max = o.n_sessions;
    params.poll = o.Polling();
    Check(Shard::Load(params, &shard_));
    const ShardInfo & i = shard_->info();
    info_ = {i.engine_class, i.weight_bytes, i.n_vocab, i.n_embd, i.n_layer, i.n_ubatch};
    rows_.reserve(i.n_ubatch);
  }

  const Info & info() const override { return info_; }

  void Decode(std::span<const Row> rows) override {
    rows_.clear();
    for (const Row & row : rows) {
      rows_.push_back({.token = row.token, .pos = row.pos, .seq = row.session, .want_logits = row.want_logits});
    }
    Check(shard_->Decode(rows_, nullptr));
  }

  const float * Logits(size_t row) override { return shard_->logits(row); }
  void Clear(int32_t session) override { shard_->Clear(session); }

 private:
  std::unique_ptr<Shard> shard_;
  Info info_;
  std::vector<meshnet::Row> rows_;
};

}  // namespace

std::unique_ptr<Model> Model::Load(const Options & options) { return std::make_unique<ShardModel>(options); }

}  // namespace meshnet::whole
