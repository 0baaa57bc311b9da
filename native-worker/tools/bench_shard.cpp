// Times a whole model in one process, with the worker's own Shard and nothing around it: what a split is held against.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "shard.h"

namespace {

constexpr const char * kUsage = R"(usage: meshnet-bench-shard --model FILE [--threads N] [--cells N] [--ubatch N]

Loads the model, prints {"engine_class", "weight_bytes"}, then for each line "PROMPT OUTPUT" on stdin runs a prompt of that
many tokens and generates greedily; prints {"prefill_ms", "decode_ms": [each token after the first]}.
)";

using Clock = std::chrono::steady_clock;

double MsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void Check(const meshnet::Status & status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

int32_t Greedy(const meshnet::Shard & shard, size_t row) {
  const float * logits = shard.logits(row);
  return static_cast<int32_t>(std::max_element(logits, logits + shard.info().n_vocab) - logits);
}

void Run(meshnet::Shard & shard, int32_t n_prompt, int32_t n_output) {
  shard.Clear(0);
  const auto chunk = static_cast<int32_t>(shard.info().n_ubatch);
  std::vector<meshnet::Row> rows;
  const auto start = Clock::now();
  for (int32_t pos = 0; pos < n_prompt; pos += chunk) {
    rows.clear();
    for (int32_t i = pos; i < std::min(pos + chunk, n_prompt); i++) {
      rows.push_back({.token = 100 + (i * 7919) % (shard.info().n_vocab - 200), .pos = i, .seq = 0, .want_logits = i + 1 == n_prompt});
    }
    Check(shard.Decode(rows, nullptr));
  }
  int32_t token = Greedy(shard, rows.size() - 1);
  std::printf("{\"prefill_ms\":%.3f,\"decode_ms\":[", MsSince(start));
  for (int32_t i = 1; i < n_output; i++) {
    const auto step = Clock::now();
    const meshnet::Row row = {.token = token, .pos = n_prompt + i - 1, .seq = 0, .want_logits = true};
    Check(shard.Decode({&row, 1}, nullptr));
    token = Greedy(shard, 0);
    std::printf("%s%.3f", i == 1 ? "" : ",", MsSince(step));
  }
  std::printf("]}\n");
  std::fflush(stdout);
}

meshnet::ShardParams Parse(int argc, char ** argv) {
  meshnet::ShardParams params;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--model") params.model_path = value;
    else if (name == "--threads") params.n_threads = std::stoi(value);
    else if (name == "--cells") params.n_ctx = static_cast<uint32_t>(std::stoul(value));
    else if (name == "--ubatch") params.n_ubatch = static_cast<uint32_t>(std::stoul(value));
    else throw std::runtime_error("unknown option " + name);
  }
  if (params.model_path.empty()) throw std::runtime_error("--model is needed");
  return params;
}

}  // namespace

int main(int argc, char ** argv) {
  if (argc == 2 && std::string(argv[1]) == "--help") {
    std::fputs(kUsage, stdout);
    return 0;
  }
  try {
    std::unique_ptr<meshnet::Shard> shard;
    Check(meshnet::Shard::Load(Parse(argc, argv), &shard));
    std::printf("{\"engine_class\":\"%s\",\"weight_bytes\":%llu}\n", shard->info().engine_class.c_str(),
                static_cast<unsigned long long>(shard->info().weight_bytes));
    std::fflush(stdout);
    for (std::string line; std::getline(std::cin, line);) {
      std::istringstream words(line);
      int32_t n_prompt = 0, n_output = 0;
      if (!(words >> n_prompt >> n_output) || n_prompt < 1 || n_output < 1) throw std::runtime_error("cannot read the line: " + line);
      Run(*shard, n_prompt, n_output);
    }
    return 0;
  } catch (const std::exception & e) {
    std::fprintf(stderr, "meshnet-bench-shard: %s\n", e.what());
    return 1;
  }
}
