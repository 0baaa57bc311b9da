// A whole model in one process, as bench_whole measures it: ours through the worker's Shard, or llama.cpp alone.
// Threads: one thread loads and calls it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace meshnet::whole {

struct Options {
  std::string model_path;
  int32_t n_threads = 1;
  uint32_t n_cells = 4096;   // KV cells of all sessions together
  uint32_t n_sessions = 1;
  uint32_t n_ubatch = 512;   // rows computed at once
  uint32_t n_batch = 2048;   // rows handed to llama.cpp at once; a Shard takes no more than n_ubatch
  int32_t poll = -1;         // 0 sleeps between steps .. 100 spins; -1: 0 with one thread, else llama.cpp's default
  bool kv_unified = true;    // one pool of cells, as the worker has it; else a pool for each session
  std::vector<std::string> rpc_servers;  // HOST:PORT
  int32_t rpc_local_layers = 0;          // the first so many stay here
  bool rpc_local_output = false;         // and the output head too

  // What poll stands for.
  uint32_t Polling() const { return poll >= 0 ? static_cast<uint32_t>(poll) : n_threads > 1 ? 50 : 0; }
};

struct Info {
  std::string engine;
  uint64_t weight_bytes = 0;
  int32_t n_vocab = 0, n_embd = 0, n_layer = 0;
  uint32_t n_rows = 0;  // rows of one Decode at most
};

struct Row {
  int32_t token = 0, pos = 0, session = 0;
  bool want_logits = false;
};

class Model {
 public:
  // Throws std::runtime_error with the reason.
  static std::unique_ptr<Model> Load(const Options & options);
  virtual ~Model() = default;

  virtual const Info & info() const = 0;
  // Throws when it failed; the sessions are to be cleared then. REQUIRES rows.size() <= info().n_rows.
  virtual void Decode(std::span<const Row> rows) = 0;
  // Of a row of the last Decode that wanted them: [n_vocab].
  virtual const float * Logits(size_t row) = 0;
  virtual void Clear(int32_t session) = 0;
};

}  // namespace meshnet::whole
