// Args: the worker's command line.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "engine.h"
#include "shard.h"
#include "status.h"

namespace meshnet {

struct WorkerArgs {
  bool help = false;
  ShardParams shard;    // model, layers, threads, cells, sequences, ubatch, kv
  EngineParams engine;  // group wait, sampling threads, trace
  std::string control;  // Unix socket path
  std::string token_file;
  std::string listen = "0.0.0.0:0";
  bool direct = true;
  std::string model_digest;  // 32 bytes, or empty
  int parent_pid = 0;        // 0: the parent is not watched
};

// kMalformed: an unknown flag, a missing or wrong value; the message names it.
Status ParseArgs(int argc, char ** argv, WorkerArgs * out);

const char * Usage();

}  // namespace meshnet
