// Runs a recorded list of decodes and sequence operations on a whole model and prints the digest of every row of logits:
// what a route's tail traced is held against this.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "sha256.h"
#include "shard.h"

namespace {

constexpr const char * kUsage = R"(usage: meshnet-replay --model FILE [option value]... < SCRIPT

  --threads N  --cells N  --sequences N  --ubatch N  --kv f16|f32   as the workers were started

The script, a line each:
  clear SEQ               forget a sequence
  truncate SEQ POS        keep positions [0, POS)
  row TOKEN POS SEQ WANT  one row of the next decode; WANT 1 asks for its logits
  run                     decode the rows so far

Prints one line {"decode", "sha256": [...], "argmax": [...]} for each run: digest and largest entry of each row of logits, in
the order of the rows that wanted them.
)";

meshnet::ShardParams Parse(int argc, char ** argv) {
  meshnet::ShardParams params;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--model") params.model_path = value;
    else if (name == "--kv") params.kv_type = value;
    else if (name == "--threads") params.n_threads = std::stoi(value);
    else if (name == "--cells") params.n_ctx = static_cast<uint32_t>(std::stoul(value));
    else if (name == "--sequences") params.n_seq_max = static_cast<uint32_t>(std::stoul(value));
    else if (name == "--ubatch") params.n_ubatch = static_cast<uint32_t>(std::stoul(value));
    else throw std::runtime_error("unknown option " + name);
  }
  if (params.model_path.empty()) throw std::runtime_error("--model is needed");
  return params;
}

void Check(const meshnet::Status & status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

void Run(meshnet::Shard & shard, const std::vector<meshnet::Row> & rows, int n) {
  Check(shard.Decode(rows, nullptr));
  std::string digests, largest;
  for (size_t i = 0; i < rows.size(); i++) {
    if (!rows[i].want_logits) continue;
    const float * logits = shard.logits(i);
    meshnet::Sha256 row;
    row.Add(logits, sizeof(float) * static_cast<size_t>(shard.info().n_vocab));
    digests += (digests.empty() ? "\"" : ",\"") + row.Hex() + "\"";
    largest += (largest.empty() ? "" : ",") + std::to_string(std::max_element(logits, logits + shard.info().n_vocab) - logits);
  }
  std::printf("{\"decode\":%d,\"sha256\":[%s],\"argmax\":[%s]}\n", n, digests.c_str(), largest.c_str());
}

void Replay(meshnet::Shard & shard) {
  std::vector<meshnet::Row> rows;
  int n = 0;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    int32_t seq = 0, pos = 0;
    if (what == "clear" && words >> seq) {
      shard.Clear(seq);
    } else if (what == "truncate" && words >> seq >> pos) {
      Check(shard.Truncate(seq, pos));
    } else if (what == "row") {
      meshnet::Row row;
      words >> row.token >> row.pos >> row.seq >> row.want_logits;
      rows.push_back(row);
    } else if (what == "run" && !rows.empty()) {
      Run(shard, rows, n++);
      rows.clear();
    } else {
      throw std::runtime_error("cannot read the line: " + line);
    }
  }
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
    Replay(*shard);
    return 0;
  } catch (const std::exception & e) {
    std::fprintf(stderr, "meshnet-replay: %s\n", e.what());
    return 1;
  }
}
