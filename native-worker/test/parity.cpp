// Proves that chains of shards compute what the whole model computes, bit for bit, in one process.
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>

#include "gguf_check.h"
#include "parity_chain.h"

namespace meshnet {
namespace {

constexpr const char * kUsage = R"(usage: meshnet-parity --model FILE [option value]...

  --cuts LIST     chains to test: "all" (default) is every boundary and several three-way chains;
                  otherwise like 4 or 1,3;2 (chains apart by ;, cuts of a chain by ,);
                  "none" is the whole model
  --ubatch N      rows of one decode (default 64)
  --threads N     (default 1)
  --kv T          f16 or f32 (default f16)
  --seed N        of the scenario (default 1)
  --greedy N      tokens that the first sequence decodes (default 64)
  --sparse DIR    load every shard from a file in DIR that holds only the header and its own tensors
  --tokens LIST   continue this prompt with the first chain of --cuts, and print what meshnet-reference prints for
                  each row of logits, instead
  --memory A-B    load layers [A, B) alone, decode, and compare the process's PSS with its bound instead

The last line of the output is JSON; the exit code is 0 only when everything was equal.
)";

struct Options {
  ShardParams shard;
  ScriptParams script;
  std::string cuts = "all", sparse, memory, tokens;
  Fault fault = Fault::kNone;
};

Options Parse(int argc, char ** argv) {
  Options o;
  o.shard.n_ctx = 1024;
  o.shard.n_seq_max = 8;
  o.shard.n_ubatch = 64;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) throw std::runtime_error("no value for " + name);
    const std::string value = argv[i + 1];
    if (name == "--model") o.shard.model_path = value;
    else if (name == "--cuts") o.cuts = value;
    else if (name == "--ubatch") o.shard.n_ubatch = static_cast<uint32_t>(std::stoul(value));
    else if (name == "--threads") o.shard.n_threads = std::stoi(value);
    else if (name == "--kv") o.shard.kv_type = value;
    else if (name == "--seed") o.script.seed = std::stoull(value);
    else if (name == "--greedy") o.script.n_greedy = std::stoi(value);
    else if (name == "--sparse") o.sparse = value;
    else if (name == "--memory") o.memory = value;
    else if (name == "--tokens") o.tokens = value;
    else if (name == "--hook" && value == "swap-seq") o.fault = Fault::kSwapSeq;
    else if (name == "--hook" && value == "skip-clear") o.fault = Fault::kSkipClear;
    else throw std::runtime_error("unknown option " + name + " " + value);
  }
  if (o.shard.model_path.empty()) throw std::runtime_error("--model is needed");
  return o;
}

std::vector<int32_t> Numbers(const std::string & text) {
  std::vector<int32_t> numbers;
  std::istringstream list(text);
  for (std::string part; std::getline(list, part, ',');) numbers.push_back(std::stoi(part));
  return numbers;
}

std::vector<std::vector<int32_t>> Chains(const std::string & cuts, int32_t n_layer) {
  std::vector<std::vector<int32_t>> chains;
  if (cuts == "all") {
    for (int32_t b = 1; b < n_layer; b++) chains.push_back({b});
    if (n_layer >= 3) chains.push_back({1, n_layer - 1});
    if (n_layer >= 6) chains.insert(chains.end(), {{n_layer / 3, 2 * n_layer / 3}, {1, 2}, {n_layer - 2, n_layer - 1}});
    return chains;
  }
  if (cuts == "none") return {{}};
  std::istringstream list(cuts);
  for (std::string chain; std::getline(list, chain, ';');) chains.push_back(Numbers(chain));
  if (chains.empty()) throw std::runtime_error("--cuts names no chain");
  return chains;
}

void Require(const Status & status) {
  if (!status.ok()) throw std::runtime_error(status.message() + " (code " + std::to_string(static_cast<int>(status.code())) + ")");
}

int Compare(const Options & o) {
  std::unique_ptr<Shard> whole;
  Require(Shard::Load(o.shard, &whole));
  Script script;
  Require(Record(*whole, o.script, &script));
  const int32_t n_layer = whole->info().n_layer;
  const std::string engine_class = whole->info().engine_class;
  whole.reset();

  const auto chains = Chains(o.cuts, n_layer);
  int64_t n_rows = 0, n_different = 0;
  float max_abs = 0;
  for (const auto & cuts : chains) {
    std::string name = "0";
    for (const int32_t cut : cuts) name += "-" + std::to_string(cut);
    name += "-" + std::to_string(n_layer);
    std::unique_ptr<Chain> chain;
    Require(Chain::Load(o.shard, n_layer, cuts, o.sparse, &chain));
    Difference d;
    chain->Replay(script, o.fault, &d);
    std::printf("%s: %lld rows, %lld different%s%s\n", name.c_str(), static_cast<long long>(d.n_rows),
                static_cast<long long>(d.n_different), d.first.empty() ? "" : ", first: ", d.first.c_str());
    std::fflush(stdout);
    n_rows += d.n_rows;
    n_different += d.n_different;
    max_abs = std::max(max_abs, d.max_abs);
  }
  int64_t n_distinct = 0;
  for (size_t i = 1; i < script.greedy.size(); i++) n_distinct += script.greedy[i] != script.greedy[i - 1];
  std::printf(
      "{\"equal\":%s,\"chains\":%zu,\"layers\":%d,\"rows\":%lld,\"different\":%lld,\"max_abs\":%g,\"greedy\":%zu,"
      "\"greedy_changes\":%lld,\"joins\":%lld,\"leaves\":%lld,\"rewinds\":%lld,\"mixed\":%lld,\"engine_class\":\"%s\"}\n",
      n_different == 0 ? "true" : "false", chains.size(), n_layer, static_cast<long long>(n_rows),
      static_cast<long long>(n_different), static_cast<double>(max_abs), script.greedy.size(),
      static_cast<long long>(n_distinct), static_cast<long long>(script.n_joins), static_cast<long long>(script.n_leaves),
      static_cast<long long>(script.n_rewinds), static_cast<long long>(script.n_mixed), engine_class.c_str());
  return n_different == 0 && n_rows > 0 ? 0 : 1;
}

int Greedy(const Options & o) {
  GgufSummary model;
  Require(CheckGguf(o.shard.model_path, &model));
  std::unique_ptr<Chain> chain;
  Require(Chain::Load(o.shard, model.n_layer, Chains(o.cuts, model.n_layer).at(0), o.sparse, &chain));
  Require(chain->Greedy(Numbers(o.tokens), o.script.n_greedy));
  return 0;
}

int64_t PssBytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string line; std::getline(rollup, line);) {
    if (line.rfind("Pss:", 0) == 0) return std::stoll(line.substr(4)) * 1024;
  }
  throw std::runtime_error("no PSS in /proc/self/smaps_rollup");
}

int Memory(const Options & o) {
  ShardParams p = o.shard;
  const size_t dash = o.memory.find('-');
  p.layer_first = std::stoi(o.memory.substr(0, dash));
  p.layer_last = std::stoi(o.memory.substr(dash + 1));
  std::unique_ptr<Shard> shard;
  Require(Shard::Load(p, &shard));
  const ShardInfo & info = shard->info();

  // Decodes that touch everything: a full step, and all cells' worth of positions.
  std::vector<Row> rows(info.n_ubatch);
  const std::vector<float> boundary(static_cast<size_t>(info.n_embd) * info.n_ubatch, 0.1f);
  for (int32_t pos = 0; pos + static_cast<int32_t>(rows.size()) <= static_cast<int32_t>(info.n_ctx);) {
    for (Row & row : rows) row = {3, pos++, 0, false};
    rows.back().want_logits = info.is_tail;
    Require(shard->Decode(rows, info.is_head ? nullptr : boundary.data()));
  }
  const int64_t pss = PssBytes();
  const auto limit = static_cast<int64_t>(1.15 * static_cast<double>(info.weight_bytes)) +
                     static_cast<int64_t>(info.kv_bytes) + (int64_t{96} << 20);
  std::printf(
      "{\"ok\":%s,\"pss\":%lld,\"limit\":%lld,\"weight_bytes\":%llu,\"weight_buffer_bytes\":%llu,\"kv_bytes\":%llu,"
      "\"scratch_bytes\":%llu}\n",
      pss <= limit ? "true" : "false", static_cast<long long>(pss), static_cast<long long>(limit),
      static_cast<unsigned long long>(info.weight_bytes), static_cast<unsigned long long>(info.weight_buffer_bytes),
      static_cast<unsigned long long>(info.kv_bytes), static_cast<unsigned long long>(info.scratch_bytes));
  return pss <= limit ? 0 : 1;
}

}  // namespace
}  // namespace meshnet

int main(int argc, char ** argv) {
  if (argc == 2 && std::string(argv[1]) == "--help") {
    std::fputs(meshnet::kUsage, stdout);
    return 0;
  }
  try {
    const auto options = meshnet::Parse(argc, argv);
    if (!options.memory.empty()) return meshnet::Memory(options);
    return options.tokens.empty() ? meshnet::Compare(options) : meshnet::Greedy(options);
  } catch (const std::exception & e) {
    std::fprintf(stderr, "meshnet-parity: %s\n", e.what());
    return 2;
  }
}
