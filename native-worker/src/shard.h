// Shard: one contiguous layer range [first, last) of a GGUF model in one llama_context.
// Threads: after Load, only the engine thread calls it. Load may run on any one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "status.h"

struct llama_model;
struct llama_context;
struct llama_vocab;

namespace meshnet {

// One position of one sequence in a decode.
struct Row {
  int32_t token = 0;        // used by the head only
  int32_t pos = 0;          // REQUIRES: next position of the sequence at this shard
  int32_t seq = 0;          // 0 .. n_seq_max-1
  bool want_logits = false; // tail only
};

struct ShardParams {
  std::string model_path;
  int32_t layer_first = 0;
  int32_t layer_last = -1;   // half open; -1 means n_layer
  uint32_t n_ctx = 4096;     // KV cells, shared by all sequences (unified KV)
  uint32_t n_seq_max = 16;   // sequence ids 0 .. n_seq_max-1; 256 at most
  uint32_t n_ubatch = 256;   // rows of one decode
  uint32_t n_logits_max = 64; // rows of one decode that may want logits; at least n_seq_max is granted
  int32_t n_threads = 1;
  uint32_t poll = 0;         // how long threads spin for work before they sleep, 0 to 100; spinning starves neighbours
  std::string kv_type = "f16";                 // f16 or f32
  std::function<bool(float)> on_progress;      // 0..1, never decreasing; false stops the load
  // For tests of what a failed decode costs: true breaks the decode of these rows off while it computes.
  std::function<bool(std::span<const Row>)> give_up{};
};

// What was loaded, measured after the load. Sizes in bytes.
struct ShardInfo {
  std::string architecture;
  std::string engine_class;     // shards of equal classes compute equal bits from equal batches
  int32_t layer_first = 0;
  int32_t layer_last = 0;
  int32_t n_layer = 0;
  int32_t n_embd = 0;
  int32_t n_vocab = 0;
  int32_t n_ctx_train = 0;
  uint32_t n_ctx = 0;
  uint32_t n_seq_max = 0;
  uint32_t n_ubatch = 0;
  uint64_t weight_bytes = 0;    // tensors owned by the range
  uint64_t weight_buffer_bytes = 0;  // the same as allocated: repacking and a tied output add to it
  uint64_t kv_bytes = 0;
  uint64_t scratch_bytes = 0;   // compute buffers
  bool is_head = false;         // first == 0: owns the token embedding, input is tokens
  bool is_tail = false;         // last == n_layer: owns final norm and output head, output is logits
};

// Virtual where sequences change: a test can stand in between, watch, and make a mistake.
class Shard {
 public:
  // kModelCorrupt: the file is not a loadable GGUF. kRangeInvalid: [first, last) is outside the model or empty.
  // kNotCertified: the architecture has no layer-range adapter. kNoCapacity: memory. kCancelled: on_progress said so.
  static Status Load(const ShardParams & params, std::unique_ptr<Shard> * out);
  virtual ~Shard();

  const ShardInfo & info() const;
  const llama_vocab * vocab() const;

  // Runs rows in order. A head takes rows[i].token; any other shard takes boundary_in, ggml order
  // [n_embd, rows.size()] with n_embd contiguous. kDecodeFailed: nothing is said about the sequences of the batch;
  // the caller clears or truncates them. REQUIRES rows.size() <= n_ubatch, consecutive positions per sequence; what
  // breaks that (kLimitExceeded, kPositionInvalid, kTokenInvalid) is refused before anything is computed.
  virtual Status Decode(std::span<const Row> rows, const float * boundary_in);

  // After an ok Decode, until the next one. Non-tail: the residual stream before layer `last`, [n_embd, rows] in row
  // order. Tail: nullptr.
  const float * boundary_out() const;
  // Tail, row with want_logits: [n_vocab]. Otherwise nullptr.
  const float * logits(size_t row) const;

  // Keeps positions [0, pos) of the sequence. kRewindLost when the state cannot go back that far.
  Status Truncate(int32_t seq, int32_t pos);
  // Forgets the sequence.
  virtual void Clear(int32_t seq);
  // The lowest position a Truncate may name now without kRewindLost.
  int32_t MinRewind(int32_t seq) const;

 protected:
  // Takes over what `loaded` holds, which is of no more use.
  Shard(Shard && loaded) noexcept;

 private:
  struct Impl;
  explicit Shard(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace meshnet
