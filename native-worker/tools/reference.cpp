// Runs a whole model with llama.cpp alone, greedily, and prints what it computed. Built from the stock tree and from
// the patched one: equal output is the proof that the patches change nothing when no range is asked for.
#include <ggml-cpu.h>
#include <llama-cpp.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "sha256.h"
#include "tool_main.h"

namespace {

constexpr const char * kUsage = R"(usage: meshnet-reference --model FILE (--tokens ID,ID,... | --text TEXT) [option value]...

  --predict N   tokens to generate (default 64); stops early at the end of generation
  --threads N   compute threads (default 1)
  --ubatch N    rows of one decode; the prompt is cut into pieces of this size (default 256)
  --ctx N       cells (default 4096)

Prints one line {"pos", "token", "sha256"} for each row of logits, where sha256 is that of the row and token its
largest entry, then one line {"prompt_tokens", "tokens", "text", "sha256"}.
)";

struct Options {
  std::string model, text;
  std::vector<llama_token> tokens;
  int predict = 64, threads = 1, ubatch = 256, ctx = 4096;
};

Options Parse(int argc, char ** argv) {
  Options o;
  const std::map<std::string, int *> numbers = {
      {"--predict", &o.predict}, {"--threads", &o.threads}, {"--ubatch", &o.ubatch}, {"--ctx", &o.ctx}};
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (const auto number = numbers.find(name); number != numbers.end()) {
      *number->second = std::stoi(value);
    } else if (name == "--model") {
      o.model = value;
    } else if (name == "--text") {
      o.text = value;
    } else if (name == "--tokens") {
      std::istringstream list(value);
      for (std::string id; std::getline(list, id, ',');) o.tokens.push_back(std::stoi(id));
    } else {
      throw std::runtime_error("unknown option " + name);
    }
  }
  if (o.model.empty() || o.tokens.empty() == o.text.empty()) throw std::runtime_error("--model and one of --tokens and --text are needed");
  return o;
}

std::vector<llama_token> Tokenize(const llama_vocab * vocab, const std::string & text) {
  std::vector<llama_token> tokens(text.size() + 8);
  const int n = llama_tokenize(vocab, text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                               static_cast<int32_t>(tokens.size()), /*add_special=*/true, /*parse_special=*/true);
  if (n < 1) throw std::runtime_error("the text has no tokens");
  tokens.resize(static_cast<size_t>(n));
  return tokens;
}

std::string JsonString(const std::string & text) {
  std::string out = "\"";
  for (const unsigned char c : text) {
    char escaped[8];
    if (c < 0x20 || c == '"' || c == '\\') {
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", c);
      out += escaped;
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + "\"";
}

int Run(const Options & o) {
  llama_log_set([](ggml_log_level level, const char * text, void *) {
    if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
  }, nullptr);
  llama_backend_init();
  llama_model_params mp = llama_model_default_params();
  mp.n_gpu_layers = 0;
  const llama_model_ptr model(llama_model_load_from_file(o.model.c_str(), mp));
  if (!model) throw std::runtime_error("cannot load " + o.model);
  llama_context_params cp = llama_context_default_params();
  cp.n_ctx = static_cast<uint32_t>(o.ctx);
  cp.n_batch = cp.n_ubatch = static_cast<uint32_t>(o.ubatch);
  cp.n_seq_max = 1;
  cp.kv_unified = true;
  cp.n_threads = cp.n_threads_batch = o.threads;
  cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
  cp.no_perf = true;
  const llama_context_ptr ctx(llama_init_from_model(model.get(), cp));
  if (!ctx) throw std::runtime_error("cannot create a context");

  const llama_vocab * vocab = llama_model_get_vocab(model.get());
  const int n_vocab = llama_vocab_n_tokens(vocab);
  std::vector<llama_token> pending = o.tokens.empty() ? Tokenize(vocab, o.text) : o.tokens;
  const size_t n_prompt = pending.size();
  std::vector<llama_token> answer;
  std::string text;
  meshnet::Sha256 all;
  int pos = 0;
  while (static_cast<int>(answer.size()) < o.predict) {
    for (size_t at = 0; at < pending.size(); at += static_cast<size_t>(o.ubatch)) {
      const auto n = static_cast<int32_t>(std::min(pending.size() - at, static_cast<size_t>(o.ubatch)));
      if (llama_decode(ctx.get(), llama_batch_get_one(pending.data() + at, n)) != 0) throw std::runtime_error("decode failed");
      pos += n;
    }
    const float * logits = llama_get_logits_ith(ctx.get(), -1);
    const auto token = static_cast<llama_token>(std::max_element(logits, logits + n_vocab) - logits);
    meshnet::Sha256 row;
    row.Add(logits, sizeof(float) * static_cast<size_t>(n_vocab));
    all.Add(logits, sizeof(float) * static_cast<size_t>(n_vocab));
    std::printf("{\"pos\":%d,\"token\":%d,\"sha256\":\"%s\"}\n", pos - 1, token, row.Hex().c_str());
    answer.push_back(token);
    if (llama_vocab_is_eog(vocab, token)) break;
    char piece[256];
    const int size = llama_token_to_piece(vocab, token, piece, sizeof(piece), 0, /*special=*/false);
    if (size > 0) text.append(piece, static_cast<size_t>(size));
    pending.assign(1, token);
  }
  std::string list;
  for (const llama_token token : answer) list += (list.empty() ? "" : ",") + std::to_string(token);
  std::printf("{\"prompt_tokens\":%zu,\"tokens\":[%s],\"text\":%s,\"sha256\":\"%s\"}\n", n_prompt, list.c_str(),
              JsonString(text).c_str(), all.Hex().c_str());
  return 0;
}

}  // namespace

int main(int argc, char ** argv) {
  return meshnet::ToolMain(argc, argv, "meshnet-reference", kUsage, [&] {
    return Run(Parse(argc, argv));
  });
}
