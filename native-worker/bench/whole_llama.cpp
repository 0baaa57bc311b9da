// The whole model in unpatched llama.cpp, with the choices that Shard makes, or with layers on its RPC servers.
#include <ggml-cpp.h>
#include <ggml-cpu.h>
#include <ggml-rpc.h>
#include <gguf.h>
#include <llama-cpp.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "whole_model.h"

namespace meshnet::whole {
namespace {

struct ThreadpoolFree {
  void operator()(ggml_threadpool * pool) const { ggml_threadpool_free(pool); }
};

struct BatchFree {
  void operator()(llama_batch * batch) const {
    llama_batch_free(*batch);
    delete batch;
  }
};

struct GgufFree {
  void operator()(gguf_context * file) const { gguf_free(file); }
};

int32_t LayersOf(const std::string & path) {
  const gguf_init_params header_alone = {.no_alloc = true, .ctx = nullptr};
  const std::unique_ptr<gguf_context, GgufFree> file(gguf_init_from_file(path.c_str(), header_alone));
  if (!file) throw std::runtime_error("cannot read " + path);
  const int64_t architecture = gguf_find_key(file.get(), "general.architecture");
  if (architecture < 0) throw std::runtime_error(path + " names no architecture");
  const std::string key = std::string(gguf_get_val_str(file.get(), architecture)) + ".block_count";
  const int64_t layers = gguf_find_key(file.get(), key.c_str());
  if (layers < 0) throw std::runtime_error(path + " does not say " + key);
  return static_cast<int32_t>(gguf_get_val_u32(file.get(), layers));
}

// The devices of the named servers, ended by a null as llama.cpp wants it.
std::vector<ggml_backend_dev_t> Devices(const std::vector<std::string> & servers) {
  std::vector<ggml_backend_dev_t> devices;
  for (const std::string & server : servers) {
    const ggml_backend_reg_t reg = ggml_backend_rpc_add_server(server.c_str());
    if (reg == nullptr) throw std::runtime_error("no RPC server answers at " + server);
    ggml_backend_register(reg);
    for (size_t i = 0; i < ggml_backend_reg_dev_count(reg); i++) devices.push_back(ggml_backend_reg_dev_get(reg, i));
  }
  devices.push_back(nullptr);
  return devices;
}

class LlamaModel : public Model {
 public:
  explicit LlamaModel(const Options & o) {
    llama_log_set([](ggml_log_level level, const char * text, void *) {
      if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
    }, nullptr);
    llama_backend_init();
    LoadModel(o);
    CreateContext(o);
  }

  const Info & info() const override { return info_; }

  void Decode(std::span<const Row> rows) override {
    llama_batch & batch = *batch_;
    batch.n_tokens = static_cast<int32_t>(rows.size());
    for (size_t i = 0; i < rows.size(); i++) {
      batch.token[i] = rows[i].token;
      batch.pos[i] = rows[i].pos;
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = rows[i].session;
      batch.logits[i] = rows[i].want_logits;
    }
    const int32_t result = llama_decode(ctx_.get(), batch);
    if (result != 0) throw std::runtime_error("llama_decode returned " + std::to_string(result));
    llama_synchronize(ctx_.get());
  }

  const float * Logits(size_t row) override { return llama_get_logits_ith(ctx_.get(), static_cast<int32_t>(row)); }
  void Clear(int32_t session) override { llama_memory_seq_rm(llama_get_memory(ctx_.get()), session, -1, -1); }

 private:
  void LoadModel(const Options & o) {
    llama_model_params mp = llama_model_default_params();
    mp.n_gpu_layers = 0;
    mp.load_mode = LLAMA_LOAD_MODE_NONE;
    const std::vector<float> equal_shares(llama_max_devices(), 1.0f);
    std::vector<ggml_backend_dev_t> devices = Devices(o.rpc_servers);
    mp.devices = devices.data();
    const llama_model_tensor_buft_override local_output[] = {{"^output", ggml_backend_cpu_buffer_type()},
                                                             {nullptr, nullptr}};
    if (!o.rpc_servers.empty()) {
      const int32_t n_layer = LayersOf(o.model_path);
      if (o.rpc_local_layers >= n_layer) {
        throw std::runtime_error("--rpc-layers leaves no layer of " + std::to_string(n_layer) + " to the servers");
      }
      mp.n_gpu_layers = n_layer + 1 - o.rpc_local_layers;  // the output head counts as a layer
      mp.tensor_split = equal_shares.data();
      if (o.rpc_local_output) mp.tensor_buft_overrides = local_output;
    }
    model_.reset(llama_model_load_from_file(o.model_path.c_str(), mp));
    if (!model_) throw std::runtime_error("cannot load " + o.model_path);
  }

  void CreateContext(const Options & o) {
    llama_context_params cp = llama_context_default_params();
    cp.n_ctx = o.n_cells;
    cp.n_batch = std::max(o.n_batch, o.n_ubatch);
    cp.n_ubatch = o.n_ubatch;
    cp.n_seq_max = o.kv_unified ? 1 : o.n_sessions;
    cp.kv_unified = o.kv_unified;
    cp.n_outputs_max = o.n_sessions;
    cp.n_threads = cp.n_threads_batch = o.n_threads;
    cp.type_k = cp.type_v = GGML_TYPE_F16;
    cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    cp.offload_kqv = !o.rpc_servers.empty();
    cp.op_offload = false;
    cp.no_perf = true;
    ctx_.reset(llama_init_from_model(model_.get(), cp));
    if (!ctx_) throw std::runtime_error("cannot create a context");
    ggml_threadpool_params tp = ggml_threadpool_params_default(o.n_threads);
    tp.poll = o.Polling();
    pool_.reset(ggml_threadpool_new(&tp));
    if (!pool_) throw std::runtime_error("cannot start the compute threads");
    llama_attach_threadpool(ctx_.get(), pool_.get(), pool_.get());
    const uint32_t n_rows = llama_n_batch(ctx_.get());
    batch_.reset(new llama_batch(llama_batch_init(static_cast<int32_t>(n_rows), 0, 1)));
    info_ = {"llama-" MESHNET_LLAMA_TREE, llama_model_size(model_.get()),
             llama_vocab_n_tokens(llama_model_get_vocab(model_.get())), llama_model_n_embd(model_.get()),
             llama_model_n_layer(model_.get()), n_rows};
    info_.engine.resize(std::string("llama-").size() + 8);
    info_.engine += o.rpc_servers.empty() ? "-stock" : "-stock-rpc";
  }

  llama_model_ptr model_;
  std::unique_ptr<ggml_threadpool, ThreadpoolFree> pool_;  // outlives ctx_, which uses it
  llama_context_ptr ctx_;
  std::unique_ptr<llama_batch, BatchFree> batch_;
  Info info_;
};

}  // namespace

std::unique_ptr<Model> Model::Load(const Options & options) { return std::make_unique<LlamaModel>(options); }

}  // namespace meshnet::whole
