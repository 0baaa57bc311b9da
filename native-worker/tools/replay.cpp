// Runs a recorded list of decodes and sequence operations on a whole model, or on a chain of shards of it, and prints the
// digest of every row of logits: what a route's tail traced is held against this.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "sha256.h"
#include "shard.h"
#include "tool_main.h"

namespace {

constexpr const char * kUsage = R"(usage: meshnet-replay --model FILE [option value]... < SCRIPT

  --threads N  --cells N  --sequences N  --ubatch N  --kv f16|f32   as the workers were started
  --cuts LIST     layers at which the model is cut into a chain of shards, like 4 or 1,3 (default: whole)
  --logits FILE   write the rows of logits, too: float32, n_vocab numbers a row, in the order of the digests

The script, a line each:
  clear SEQ               forget a sequence
  truncate SEQ POS        keep positions [0, POS)
  row TOKEN POS SEQ WANT  one row of the next decode; WANT 1 asks for its logits
  run                     decode the rows so far

Prints one line {"decode", "sha256": [...], "argmax": [...]} for each run: digest and largest entry of each row of logits, in
the order of the rows that wanted them.
)";

struct Options {
  meshnet::ShardParams shard;
  std::vector<int32_t> cuts;
  std::string logits;
};

Options Parse(int argc, char ** argv) {
  Options options;
  meshnet::ShardParams & params = options.shard;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--model") params.model_path = value;
    else if (name == "--kv") params.kv_type = value;
    else if (name == "--threads") params.n_threads = std::stoi(value);
    else if (name == "--cells") params.n_ctx = static_cast<uint32_t>(std::stoul(value));
    else if (name == "--sequences") params.n_seq_max = static_cast<uint32_t>(std::stoul(value));
    else if (name == "--ubatch") params.n_ubatch = static_cast<uint32_t>(std::stoul(value));
    else if (name == "--logits") options.logits = value;
    else if (name == "--cuts") {
      std::istringstream list(value);
      for (std::string cut; std::getline(list, cut, ',');) options.cuts.push_back(std::stoi(cut));
    } else throw std::runtime_error("unknown option " + name);
  }
  if (params.model_path.empty()) throw std::runtime_error("--model is needed");
  return options;
}

void Check(const meshnet::Status & status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

using Chain = std::vector<std::unique_ptr<meshnet::Shard>>;

Chain Load(const Options & options) {
  Chain chain;
  meshnet::ShardParams params = options.shard;
  for (size_t i = 0; i <= options.cuts.size(); i++) {
    params.layer_first = i == 0 ? 0 : options.cuts[i - 1];
    params.layer_last = i == options.cuts.size() ? -1 : options.cuts[i];
    chain.emplace_back();
    Check(meshnet::Shard::Load(params, &chain.back()));
  }
  return chain;
}

struct FileClose {
  void operator()(std::FILE * file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, FileClose>;

void Run(const Chain & chain, const std::vector<meshnet::Row> & rows, int n, std::FILE * file) {
  const float * boundary = nullptr;
  for (const auto & shard : chain) {
    Check(shard->Decode(rows, boundary));
    boundary = shard->boundary_out();
  }
  const meshnet::Shard & tail = *chain.back();
  const auto n_vocab = static_cast<size_t>(tail.info().n_vocab);
  std::string digests, largest;
  for (size_t i = 0; i < rows.size(); i++) {
    if (!rows[i].want_logits) continue;
    const float * logits = tail.logits(i);
    meshnet::Sha256 row;
    row.Add(logits, sizeof(float) * n_vocab);
    digests += (digests.empty() ? "\"" : ",\"") + row.Hex() + "\"";
    largest += (largest.empty() ? "" : ",") + std::to_string(std::max_element(logits, logits + n_vocab) - logits);
    if (file != nullptr && std::fwrite(logits, sizeof(float), n_vocab, file) != n_vocab) {
      throw std::runtime_error("cannot write the logits: disk full?");
    }
  }
  std::printf("{\"decode\":%d,\"sha256\":[%s],\"argmax\":[%s]}\n", n, digests.c_str(), largest.c_str());
}

void Replay(const Options & options) {
  const Chain chain = Load(options);
  File file;
  if (!options.logits.empty()) {
    file.reset(std::fopen(options.logits.c_str(), "wb"));
    if (!file) throw std::runtime_error("cannot write " + options.logits);
  }
  std::vector<meshnet::Row> rows;
  int n = 0;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    int32_t seq = 0, pos = 0;
    if (what == "clear" && words >> seq) {
      for (const auto & shard : chain) shard->Clear(seq);
    } else if (what == "truncate" && words >> seq >> pos) {
      for (const auto & shard : chain) Check(shard->Truncate(seq, pos));
    } else if (what == "row") {
      meshnet::Row row;
      words >> row.token >> row.pos >> row.seq >> row.want_logits;
      rows.push_back(row);
    } else if (what == "run" && !rows.empty()) {
      Run(chain, rows, n++, file.get());
      rows.clear();
    } else {
      throw std::runtime_error("cannot read the line: " + line);
    }
  }
  if (file && std::fclose(file.release()) != 0) throw std::runtime_error("cannot write the logits: disk full?");
}

}  // namespace

int main(int argc, char ** argv) {
  return meshnet::ToolMain(argc, argv, "meshnet-replay", kUsage, [&] {
    Replay(Parse(argc, argv));
    return 0;
  });
}
