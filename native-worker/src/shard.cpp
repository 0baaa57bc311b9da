#include "shard.h"

#include <ggml-cpu.h>
#include <ggml-cpp.h>
#include <llama-cpp.h>
#include <llama-ext.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <mutex>
#include <vector>

#include "engine_abort_guard.h"
#include "gguf_check.h"

namespace meshnet {
namespace {

constexpr uint32_t kMaxSeq = 256;      // LLAMA_MAX_SEQ
constexpr uint32_t kMaxThreads = 512;  // GGML_MAX_N_THREADS
constexpr uint32_t kMaxUbatch = 1u << 16;
constexpr uint32_t kMaxCells = 1u << 24;

// The last error line of llama.cpp on this thread, because its loaders say why they failed to the log alone.
thread_local std::string last_error;

void OnLog(ggml_log_level level, const char * text, void *) {
  static thread_local ggml_log_level current = GGML_LOG_LEVEL_NONE;
  if (level != GGML_LOG_LEVEL_CONT) current = level;
  if (current != GGML_LOG_LEVEL_ERROR) return;
  last_error = text;
  std::fputs(text, stderr);
}

void InitOnce() {
  static std::once_flag once;
  std::call_once(once, [] {
    llama_log_set(OnLog, nullptr);
    llama_backend_init();
  });
}

struct ThreadpoolFree {
  void operator()(ggml_threadpool * pool) const { ggml_threadpool_free(pool); }
};

// Why a load that passed CheckGguf failed: allocation failures name themselves, everything else is the file.
Status LoadFailure() {
  const bool memory = last_error.find("alloc") != std::string::npos;
  return {memory ? Code::kNoCapacity : Code::kModelCorrupt, "llama.cpp refused the model: " + last_error};
}

struct Progress {
  const std::function<bool(float)> * report = nullptr;
  float highest = 0;
  bool cancelled = false;

  static bool OnProgress(float value, void * self) {
    auto * progress = static_cast<Progress *>(self);
    progress->highest = std::max(progress->highest, value);
    progress->cancelled = !(*progress->report)(progress->highest);
    return !progress->cancelled;
  }
};

Status CheckParams(const ShardParams & p) {
  if (p.n_ctx == 0 || p.n_ctx > kMaxCells) return {Code::kLimitExceeded, "n_ctx must be 1 to 16777216"};
  if (p.n_seq_max == 0 || p.n_seq_max > kMaxSeq) return {Code::kLimitExceeded, "n_seq_max must be 1 to 256"};
  if (p.n_ubatch == 0 || p.n_ubatch > kMaxUbatch) return {Code::kLimitExceeded, "n_ubatch must be 1 to 65536"};
  if (p.n_threads < 1 || p.n_threads > static_cast<int32_t>(kMaxThreads)) {
    return {Code::kLimitExceeded, "n_threads must be 1 to 512"};
  }
  if (p.poll > 100) return {Code::kLimitExceeded, "poll must be 0 to 100"};
  if (p.kv_type != "f16" && p.kv_type != "f32") return {Code::kDtypeInvalid, "kv_type must be f16 or f32"};
  return Status::Ok();
}

// Equal strings compute equal bits from equal batches. Instruction sets are told apart by a digest of llama.cpp's list and
// of the kernels that our build leaves out, which are not in it.
std::string EngineClass(const std::string & kv_type) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : std::string(llama_print_system_info()) + MESHNET_KERNELS) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  char text[96];
  std::snprintf(text, sizeof(text), "llama-%.8s-%.8s/cpu-%016" PRIx64 "/kv-%s", MESHNET_LLAMA_TREE, MESHNET_PATCHED_TREE,
                hash, kv_type.c_str());
  return text;
}

}  // namespace

struct Shard::Impl {
  ShardInfo info;
  llama_model_ptr model;
  std::unique_ptr<ggml_threadpool, ThreadpoolFree> pool;  // outlives ctx, which uses it
  llama_context_ptr ctx;
  llama_memory_t memory = nullptr;
  uint32_t n_logits_max = 0;
  std::function<bool(std::span<const Row>)> give_up;
  bool giving_up = false;  // asked after each operation of the running Decode

  // The batch of the running Decode, in the arrays that llama.cpp reads.
  std::vector<llama_token> tokens;
  std::vector<llama_pos> positions;
  std::vector<int32_t> n_seq_ids;
  std::vector<llama_seq_id> seqs;
  std::vector<llama_seq_id *> seq_ids;
  std::vector<int8_t> outputs;

  size_t n_rows = 0;  // of the last ok Decode
  const float * boundary = nullptr;

  Status Open(const ShardParams & params);
  Status CreateContext(const ShardParams & params);
  Status CheckRows(std::span<const Row> rows) const;
  void ReadSizes();
};

Status Shard::Impl::Open(const ShardParams & p) {
  if (Status s = CheckParams(p); !s.ok()) return s;
  InitOnce();
  last_error.clear();

  GgufSummary summary;
  if (Status s = CheckGguf(p.model_path, &summary); !s.ok()) return s;
  const int32_t last = p.layer_last == -1 ? summary.n_layer : p.layer_last;
  if (p.layer_first < 0 || p.layer_first >= last || last > summary.n_layer) {
    return {Code::kRangeInvalid, "layers " + std::to_string(p.layer_first) + "-" + std::to_string(last) +
                                     " are empty or outside of 0-" + std::to_string(summary.n_layer)};
  }
  const bool whole = p.layer_first == 0 && last == summary.n_layer;
  if (!whole && summary.architecture != "llama") {
    return {Code::kNotCertified, "architecture " + summary.architecture + " has no layer-range adapter"};
  }

  Progress progress{&p.on_progress};
  llama_model_params mp = llama_model_default_params();
  mp.n_gpu_layers = 0;
  // Read, not mapped: repacked weights would otherwise be held twice, as the copy and as the mapping.
  mp.load_mode = LLAMA_LOAD_MODE_NONE;
  mp.layer_first = p.layer_first;
  mp.layer_last = last;
  if (p.on_progress) {
    mp.progress_callback = Progress::OnProgress;
    mp.progress_callback_user_data = &progress;
  }
  model.reset(llama_model_load_from_file(p.model_path.c_str(), mp));
  if (!model) return progress.cancelled ? Status(Code::kCancelled, "the load was cancelled") : LoadFailure();

  info.architecture = summary.architecture;
  info.layer_first = p.layer_first;
  info.layer_last = last;
  info.n_layer = summary.n_layer;
  info.is_head = p.layer_first == 0;
  info.is_tail = last == summary.n_layer;
  info.n_embd = llama_model_n_embd(model.get());
  info.n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model.get()));
  info.n_ctx_train = llama_model_n_ctx_train(model.get());
  info.n_seq_max = p.n_seq_max;
  info.engine_class = EngineClass(p.kv_type);
  if (Status s = CreateContext(p); !s.ok()) return s;
  ReadSizes();
  malloc_trim(0);  // staging buffers of the load
  return Status::Ok();
}

Status Shard::Impl::CreateContext(const ShardParams & p) {
  n_logits_max = std::min(p.n_ubatch, std::max(p.n_seq_max, p.n_logits_max));
  llama_context_params cp = llama_context_default_params();
  cp.n_ctx = p.n_ctx;
  cp.n_batch = p.n_ubatch;
  cp.n_ubatch = p.n_ubatch;
  // With one unified cache every id up to 256 is valid whatever n_seq_max says; it only sizes reservations.
  cp.n_seq_max = 1;
  cp.kv_unified = true;
  cp.n_outputs_max = info.is_tail ? n_logits_max : 0;
  cp.n_threads = p.n_threads;
  cp.n_threads_batch = p.n_threads;
  cp.type_k = p.kv_type == "f32" ? GGML_TYPE_F32 : GGML_TYPE_F16;
  cp.type_v = cp.type_k;
  cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
  cp.offload_kqv = false;
  cp.op_offload = false;
  cp.no_perf = true;
  if (p.give_up) {
    give_up = p.give_up;
    cp.abort_callback = [](void * self) { return static_cast<const Impl *>(self)->giving_up; };
    cp.abort_callback_data = this;
  }
  ctx.reset(llama_init_from_model(model.get(), cp));
  if (!ctx) return {Code::kNoCapacity, "no memory for the context: " + last_error};
  memory = llama_get_memory(ctx.get());
  info.n_ctx = llama_n_ctx(ctx.get());
  info.n_ubatch = std::min(p.n_ubatch, llama_n_ubatch(ctx.get()));

  ggml_threadpool_params tp = ggml_threadpool_params_default(p.n_threads);
  tp.poll = p.poll;
  pool.reset(ggml_threadpool_new(&tp));
  if (!pool) return {Code::kNoCapacity, "cannot start the compute threads"};
  llama_attach_threadpool(ctx.get(), pool.get(), pool.get());

  tokens.resize(info.n_ubatch);
  positions.resize(info.n_ubatch);
  n_seq_ids.assign(info.n_ubatch, 1);
  seqs.resize(info.n_ubatch);
  seq_ids.resize(info.n_ubatch);
  for (size_t i = 0; i < seqs.size(); i++) seq_ids[i] = &seqs[i];
  outputs.resize(info.n_ubatch);
  return Status::Ok();
}

void Shard::Impl::ReadSizes() {
  info.weight_bytes = llama_model_size(model.get());
  for (const auto & [type, data] : llama_get_memory_breakdown(ctx.get())) {
    info.weight_buffer_bytes += data.model;
    info.kv_bytes += data.context;
    info.scratch_bytes += data.compute;
  }
}

Status Shard::Impl::CheckRows(std::span<const Row> rows) const {
  if (rows.empty() || rows.size() > info.n_ubatch) {
    return {Code::kLimitExceeded, "a decode holds 1 to " + std::to_string(info.n_ubatch) + " rows"};
  }
  std::array<int32_t, kMaxSeq> next;
  next.fill(-1);
  size_t n_logits = 0;
  for (const Row & row : rows) {
    if (row.seq < 0 || row.seq >= static_cast<int32_t>(info.n_seq_max)) {
      return {Code::kInternal, "sequence id out of range"};
    }
    if (info.is_head && (row.token < 0 || row.token >= info.n_vocab)) {
      return {Code::kTokenInvalid, "token " + std::to_string(row.token) + " is not in the vocabulary"};
    }
    int32_t & expected = next[row.seq];
    if (expected < 0) expected = llama_memory_seq_pos_max(memory, row.seq) + 1;
    if (row.pos != expected) {
      return {Code::kPositionInvalid, "sequence " + std::to_string(row.seq) + " continues at " + std::to_string(expected) +
                                          ", not at " + std::to_string(row.pos)};
    }
    expected++;
    n_logits += row.want_logits ? 1 : 0;
  }
  if (info.is_tail && n_logits > n_logits_max) {
    return {Code::kLimitExceeded, "a decode gives logits of " + std::to_string(n_logits_max) + " rows at most"};
  }
  return Status::Ok();
}

Shard::Shard(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Shard::Shard(Shard && loaded) noexcept = default;
Shard::~Shard() = default;

Status Shard::Load(const ShardParams & params, std::unique_ptr<Shard> * out) {
  auto impl = std::make_unique<Impl>();
  try {
    // A header that CheckGguf lets pass and the loader still trips over must end in a Status, not in a dead worker.
    const AbortGuard guard;
    if (Status s = impl->Open(params); !s.ok()) return s;
  } catch (const std::bad_alloc &) {
    return {Code::kNoCapacity, "out of memory while loading"};
  } catch (const std::exception & e) {
    return {Code::kModelCorrupt, std::string("llama.cpp refused the model: ") + e.what()};
  }
  out->reset(new Shard(std::move(impl)));
  return Status::Ok();
}

const ShardInfo & Shard::info() const { return impl_->info; }
const llama_vocab * Shard::vocab() const { return llama_model_get_vocab(impl_->model.get()); }

Status Shard::Decode(std::span<const Row> rows, const float * boundary_in) {
  Impl & m = *impl_;
  m.n_rows = 0;
  m.boundary = nullptr;
  if (!m.info.is_head && boundary_in == nullptr) return {Code::kInternal, "a shard above layer 0 needs its boundary"};
  if (Status s = m.CheckRows(rows); !s.ok()) return s;

  for (size_t i = 0; i < rows.size(); i++) {
    m.tokens[i] = rows[i].token;
    m.positions[i] = rows[i].pos;
    m.seqs[i] = rows[i].seq;
    m.outputs[i] = m.info.is_tail ? rows[i].want_logits : 1;
  }
  llama_batch batch = {};
  batch.n_tokens = static_cast<int32_t>(rows.size());
  if (m.info.is_head) {
    batch.token = m.tokens.data();
  } else {
    batch.embd = const_cast<float *>(boundary_in);  // read only, the C struct serves writers too
  }
  batch.pos = m.positions.data();
  batch.n_seq_id = m.n_seq_ids.data();
  batch.seq_id = m.seq_ids.data();
  batch.logits = m.outputs.data();
  m.giving_up = m.give_up && m.give_up(rows);

  try {
    const int32_t result = llama_decode(m.ctx.get(), batch);
    if (result != 0) {
      return {Code::kDecodeFailed, "llama_decode returned " + std::to_string(result) +
                                       (result == 1 ? ": no free cells" : "")};
    }
    llama_synchronize(m.ctx.get());
    if (!m.info.is_tail) m.boundary = llama_get_embeddings_layer_inp(m.ctx.get(), m.info.layer_last);
  } catch (const std::exception & e) {
    return {Code::kDecodeFailed, std::string("llama_decode threw: ") + e.what()};
  }
  m.n_rows = rows.size();
  return Status::Ok();
}

const float * Shard::boundary_out() const { return impl_->boundary; }

const float * Shard::logits(size_t row) const {
  const Impl & m = *impl_;
  if (!m.info.is_tail || row >= m.n_rows || m.outputs[row] == 0) return nullptr;
  return llama_get_logits_ith(m.ctx.get(), static_cast<int32_t>(row));
}

Status Shard::Truncate(int32_t seq, int32_t pos) {
  if (seq < 0 || seq >= static_cast<int32_t>(impl_->info.n_seq_max) || pos < 0) {
    return {Code::kInternal, "sequence id or position out of range"};
  }
  if (pos < MinRewind(seq) || !llama_memory_seq_rm(impl_->memory, seq, pos, -1)) {
    return {Code::kRewindLost, "the cells needed to continue at " + std::to_string(pos) + " are gone"};
  }
  return Status::Ok();
}

void Shard::Clear(int32_t seq) {
  if (seq >= 0 && seq < static_cast<int32_t>(impl_->info.n_seq_max)) llama_memory_seq_rm(impl_->memory, seq, -1, -1);
}

int32_t Shard::MinRewind(int32_t seq) const {
  // A cache that has dropped its oldest cells (a sliding window) still needs a whole window below the new position.
  const int32_t oldest = llama_memory_seq_pos_min(impl_->memory, seq);
  return oldest <= 0 ? 0 : oldest + llama_model_n_swa(impl_->model.get());
}

}  // namespace meshnet
