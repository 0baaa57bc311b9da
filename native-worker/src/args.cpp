#include "args.h"

#include <charconv>
#include <functional>
#include <map>
#include <string_view>

#include "bounds.h"

namespace meshnet {
namespace {

constexpr uint32_t kMaxSequences = 256;  // llama.cpp's own limit
constexpr uint32_t kMaxThreadsAsked = 512;
constexpr uint32_t kMaxCells = 1u << 24;
constexpr uint32_t kMaxUbatch = 4096;  // kMaxFrameTokens
constexpr uint32_t kMaxGroupWaitUs = 10000000;
static_assert(kMaxUbatch == kMaxFrameTokens);

template <typename T>
bool Number(std::string_view text, uint64_t low, uint64_t high, T * out) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) return false;
  *out = static_cast<T>(value);
  return true;
}

bool Layers(std::string_view text, ShardParams * shard) {
  const size_t dash = text.find('-');
  return dash != std::string_view::npos && Number(text.substr(0, dash), 0, 1 << 20, &shard->layer_first) &&
         Number(text.substr(dash + 1), 1, 1 << 20, &shard->layer_last) && shard->layer_first < shard->layer_last;
}

bool Hex(std::string_view text, std::string * out) {
  if (text.size() != 2 * kDigestBytes) return false;
  out->clear();
  for (size_t i = 0; i < text.size(); i += 2) {
    unsigned char byte = 0;
    const auto [end, error] = std::from_chars(text.data() + i, text.data() + i + 2, byte, 16);
    if (error != std::errc() || end != text.data() + i + 2) return false;
    out->push_back(static_cast<char>(byte));
  }
  return true;
}

bool Text(std::string_view text, std::string * out) {
  *out = text;
  return !text.empty();
}

}  // namespace

const char * Usage() {
  return "usage: meshnet-worker --model FILE --layers A-B --control SOCKET --token-file FILE [options]\n"
         "       meshnet-worker --text --model FILE --control SOCKET --token-file FILE\n"
         "\n"
         "Runs the layers A up to, not including, B of a GGUF model, for the node that started it.\n"
         "\n"
         "  --listen HOST:PORT     seam port; port 0 takes any free one (0.0.0.0:0)\n"
         "  --no-direct            no seam port and no direct dials\n"
         "  --threads N            compute threads (1)\n"
         "  --cells N              KV cells, shared by all sessions (4096)\n"
         "  --sequences N          sessions at once, 256 at most (16)\n"
         "  --ubatch N             positions of one decode (256)\n"
         "  --kv f16|f32           type of the KV cells (f16)\n"
         "  --model-digest HEX     refuse sessions of any other model\n"
         "  --sampling-threads N   of a tail, drawing tokens beside the next decode, 8 at most (1)\n"
         "  --group-wait-us N      how long to wait for the rest of a group (1000)\n"
         "  --trace-logits         report every tick's logits digests to the node\n"
         "  --lockstep             head: one group on its way at a time, for comparisons bit by bit\n"
         "  --parent-pid PID       exit when that process is gone\n";
}

Status ParseArgs(int argc, char ** argv, WorkerArgs * out) {
  using Setter = std::function<bool(std::string_view)>;
  WorkerArgs & a = *out;
  const std::map<std::string_view, std::function<void()>> switches{
      {"--help", [&] { a.help = true; }},
      {"--no-direct", [&] { a.direct = false; }},
      {"--trace-logits", [&] { a.engine.trace_logits = true; }},
      {"--lockstep", [&] { a.engine.lockstep = true; }},
  };
  const std::map<std::string_view, Setter> values{
      {"--model", [&](auto v) { return Text(v, &a.shard.model_path); }},
      {"--layers", [&](auto v) { return Layers(v, &a.shard); }},
      {"--control", [&](auto v) { return Text(v, &a.control); }},
      {"--token-file", [&](auto v) { return Text(v, &a.token_file); }},
      {"--listen", [&](auto v) { return Text(v, &a.listen); }},
      {"--threads", [&](auto v) { return Number(v, 1, kMaxThreadsAsked, &a.shard.n_threads); }},
      {"--cells", [&](auto v) { return Number(v, 1, kMaxCells, &a.shard.n_ctx); }},
      {"--sequences", [&](auto v) { return Number(v, 1, kMaxSequences, &a.shard.n_seq_max); }},
      {"--ubatch", [&](auto v) { return Number(v, 1, kMaxUbatch, &a.shard.n_ubatch); }},
      {"--kv", [&](auto v) { return Text(v, &a.shard.kv_type) && (v == "f16" || v == "f32"); }},
      {"--model-digest", [&](auto v) { return Hex(v, &a.model_digest); }},
      {"--sampling-threads", [&](auto v) { return Number(v, 0, kMaxSamplingThreads, &a.engine.sampling_threads); }},
      {"--group-wait-us", [&](auto v) { return Number(v, 0, kMaxGroupWaitUs, &a.engine.group_wait_us); }},
      {"--parent-pid", [&](auto v) { return Number(v, 1, INT32_MAX, &a.parent_pid); }},
  };
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (const auto found = switches.find(flag); found != switches.end()) {
      found->second();
      continue;
    }
    const auto found = values.find(flag);
    if (found == values.end()) return {Code::kMalformed, "unknown option " + std::string(flag)};
    if (i + 1 == argc) return {Code::kMalformed, std::string(flag) + " needs a value"};
    if (!found->second(argv[++i])) return {Code::kMalformed, std::string(flag) + ": not a valid value: " + argv[i]};
  }
  if (a.help) return {};
  if (a.shard.model_path.empty() || a.shard.layer_last < 0 || a.control.empty() || a.token_file.empty()) {
    return {Code::kMalformed, "--model, --layers, --control and --token-file are needed"};
  }
  return {};
}

}  // namespace meshnet
