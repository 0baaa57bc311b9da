// Times a whole model in one process with nothing around it: what everything else is held against. Built from the
// patched tree (through the worker's own Shard) and from the stock one (through llama.h, with RPC servers where asked).
#include <chrono>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "whole_job.h"
#include "../tools/tool_main.h"

namespace {

using meshnet::whole::Model;
using meshnet::whole::Options;

constexpr const char * kUsage = R"(usage: meshnet-bench-whole --model FILE [option value]...

  --threads N       compute threads (default 1)
  --cells N         KV cells of all sessions together (default 4096)
  --sessions N      sessions at once, at most 256 (default 1)
  --ubatch N        rows computed at once (default 512)
  --batch N         rows handed to llama.cpp at once, stock build only (default 2048)
  --poll N          0: threads sleep between steps .. 100: they spin (default 0 with one thread, else 50 as llama.cpp)
  --kv KIND         unified (default), or split into a pool for each session; split in the stock build only
  --rpc LIST        HOST:PORT of RPC servers, separated by commas; stock build only
  --rpc-layers local:N   the first N layers stay in this process (default 0)
  --rpc-output KIND server (default: the head is on the last server), or local

Prints {"ready", "engine", "weight_bytes", "load_ms", "n_vocab", "n_embd", "n_layer"}, then for each line of stdin,
{"prompts": [[id...]...], "output": N, "sampling": null | {"temperature", "top_k", "top_p", "seed"}}, one line
{"prefill_ms", "decode_wall_ms", "step_ms", "tokens", "peak_mib", "cpu_s", "compute_ms", "sample_ms"} or {"error"}.
)";

uint32_t Number(const std::string & name, const std::string & value, uint32_t least, uint32_t most) {
  size_t used = 0;
  const unsigned long long number = std::stoull(value, &used);
  if (used != value.size() || number < least || number > most) {
    throw std::runtime_error(name + " is " + std::to_string(least) + " to " + std::to_string(most));
  }
  return static_cast<uint32_t>(number);
}

// One of two words; true for the second.
bool Second(const std::string & name, const std::string & value, const char * first, const char * second) {
  if (value != first && value != second) throw std::runtime_error(name + " is " + first + " or " + second);
  return value == second;
}

Options Parse(int argc, char ** argv) {
  Options o;
  if (argc % 2 == 0) throw std::runtime_error("every option has a value");
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--model") {
      o.model_path = value;
    } else if (name == "--threads") {
      o.n_threads = static_cast<int32_t>(Number(name, value, 1, 512));
    } else if (name == "--cells") {
      o.n_cells = Number(name, value, 1, 1 << 24);
    } else if (name == "--sessions") {
      o.n_sessions = Number(name, value, 1, meshnet::whole::kMaxSessions);
    } else if (name == "--ubatch") {
      o.n_ubatch = Number(name, value, 1, 1 << 16);
    } else if (name == "--batch") {
      o.n_batch = Number(name, value, 1, 1 << 16);
    } else if (name == "--poll") {
      o.poll = static_cast<int32_t>(Number(name, value, 0, 100));
    } else if (name == "--kv") {
      o.kv_unified = !Second(name, value, "unified", "split");
    } else if (name == "--rpc") {
      std::istringstream list(value);
      for (std::string server; std::getline(list, server, ',');) o.rpc_servers.push_back(server);
    } else if (name == "--rpc-layers") {
      if (value.rfind("local:", 0) != 0) throw std::runtime_error("--rpc-layers is local:N");
      o.rpc_local_layers = static_cast<int32_t>(Number(name, value.substr(6), 0, 4096));
    } else if (name == "--rpc-output") {
      o.rpc_local_output = Second(name, value, "server", "local");
    } else {
      throw std::runtime_error("unknown option " + name);
    }
  }
  if (o.model_path.empty()) throw std::runtime_error("--model is needed");
  return o;
}

void Say(const std::string & line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char ** argv) {
  return meshnet::ToolMain(argc, argv, "meshnet-bench-whole", kUsage, [&] {
    const Options options = Parse(argc, argv);
    const auto start = std::chrono::steady_clock::now();
    const std::unique_ptr<Model> model = Model::Load(options);
    const double load_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    const auto & info = model->info();
    Say(nlohmann::json{{"ready", true}, {"engine", info.engine}, {"weight_bytes", info.weight_bytes},
                       {"load_ms", load_ms}, {"n_vocab", info.n_vocab}, {"n_embd", info.n_embd},
                       {"n_layer", info.n_layer}}.dump());
    for (std::string line; std::getline(std::cin, line);) Say(meshnet::whole::Answer(*model, options, line));
    return 0;
  });
}
