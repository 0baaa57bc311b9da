// Holds a model's next-token distributions against those of a truth over the same texts, teacher-forced: another model,
// or logits from a file. Row by row, so that neither side is ever held in memory as a whole.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "agreement_rows.h"
#include "shard.h"
#include "../tools/tool_main.h"

namespace {

using meshnet::Shard;
using meshnet::agreement::Sums;
using nlohmann::json;
using Text = std::vector<int32_t>;

constexpr const char * kUsage =
    R"(usage: meshnet-bench-agreement (--truth FILE | --logits FILE) --model FILE --texts FILE [option value]...

  --truth FILE   the GGUF that the other one is held against
  --logits FILE  its logits instead: for each token of each text in order a row of n_vocab f32, little-endian
  --model FILE   the GGUF that is judged
  --texts FILE   JSON {"texts": [[token id...]...]}, or "sequences", or {"ids": [token id...]} in place of a list; the
                 first row of a text is the one after its first token
  --threads N    compute threads (default 1)
  --rows N       rows computed at once (default 256)

Prints one line: {"engine", "rows", "mean_kl", "max_kl", "top1", "mean_difference", "max_difference", "texts": [the same
for each]}. KL(truth || model) in nats; top1 is the share of equal first choices; difference is of a row,
|model - truth| / |truth - its mean|.
)";

constexpr size_t kMaxTexts = 4096;
constexpr size_t kMaxTextTokens = 1 << 16;
static_assert(std::endian::native == std::endian::little, "rows of a file are read as they are");

struct Options {
  std::string truth, logits, model, texts;
  int32_t n_threads = 1;
  uint32_t n_rows = 256;
};

void Check(const meshnet::Status & status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

// Gives the rows of one text after the other, some at a time.
class Source {
 public:
  virtual ~Source() = default;
  virtual int32_t n_vocab() const = 0;
  virtual void Begin() = 0;
  // Of text[from, from + n), which follows on what came before; kept until the next call.
  virtual void Next(const Text & text, size_t from, size_t n) = 0;
  virtual const float * Row(size_t i) const = 0;
};

class ModelSource : public Source {
 public:
  ModelSource(const std::string & path, const Options & o, size_t longest) {
    meshnet::ShardParams params;
    params.model_path = path;
    params.n_ctx = static_cast<uint32_t>(longest);
    params.n_seq_max = 1;
    params.n_ubatch = params.n_logits_max = o.n_rows;
    params.n_threads = o.n_threads;
    Check(Shard::Load(params, &shard_));
  }

  const std::string & engine() const { return shard_->info().engine_class; }
  int32_t n_vocab() const override { return shard_->info().n_vocab; }
  void Begin() override { shard_->Clear(0); }

  void Next(const Text & text, size_t from, size_t n) override {
    rows_.clear();
    for (size_t i = from; i < from + n; i++) {
      rows_.push_back({.token = text[i], .pos = static_cast<int32_t>(i), .seq = 0, .want_logits = true});
    }
    Check(shard_->Decode(rows_, nullptr));
  }

  const float * Row(size_t i) const override { return shard_->logits(i); }

 private:
  std::unique_ptr<Shard> shard_;
  std::vector<meshnet::Row> rows_;
};

class FileSource : public Source {
 public:
  FileSource(const std::string & path, int32_t n_vocab, uint64_t n_rows)
      : file_(path, std::ios::binary | std::ios::ate), n_vocab_(n_vocab) {
    if (!file_) throw std::runtime_error("cannot read " + path);
    const auto bytes = static_cast<uint64_t>(file_.tellg());
    const uint64_t expected = n_rows * static_cast<uint64_t>(n_vocab) * sizeof(float);
    if (bytes != expected) {
      throw std::runtime_error(path + " has " + std::to_string(bytes) + " bytes, the texts and the vocabulary make " +
                               std::to_string(expected));
    }
    file_.seekg(0);
  }

  int32_t n_vocab() const override { return n_vocab_; }
  void Begin() override {}

  void Next(const Text &, size_t, size_t n) override {
    rows_.resize(n * static_cast<size_t>(n_vocab_));
    file_.read(reinterpret_cast<char *>(rows_.data()), static_cast<std::streamsize>(rows_.size() * sizeof(float)));
    if (!file_) throw std::runtime_error("the file of logits ended early");
  }

  const float * Row(size_t i) const override { return rows_.data() + i * static_cast<size_t>(n_vocab_); }

 private:
  std::ifstream file_;
  int32_t n_vocab_;
  std::vector<float> rows_;
};

std::vector<Text> ReadTexts(const std::string & path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  const json in = json::parse(file);
  std::vector<Text> texts;
  for (const json & text : in.at(in.contains("texts") ? "texts" : "sequences")) {
    texts.push_back((text.is_object() ? text.at("ids") : text).get<Text>());
  }
  if (texts.empty() || texts.size() > kMaxTexts) {
    throw std::runtime_error("there are 1 to " + std::to_string(kMaxTexts) + " texts");
  }
  for (const Text & text : texts) {
    if (text.empty() || text.size() > kMaxTextTokens) {
      throw std::runtime_error("a text has 1 to " + std::to_string(kMaxTextTokens) + " tokens");
    }
  }
  return texts;
}

json Report(const Sums & sums) {
  const auto rows = static_cast<double>(sums.rows);
  return {{"rows", sums.rows}, {"mean_kl", sums.kl / rows}, {"max_kl", sums.max_kl},
          {"top1", static_cast<double>(sums.same_first) / rows}, {"mean_difference", sums.difference / rows},
          {"max_difference", sums.max_difference}};
}

Sums CompareText(Source & truth, Source & model, const Text & text, size_t n_rows) {
  truth.Begin();
  model.Begin();
  const auto n_vocab = static_cast<size_t>(model.n_vocab());
  Sums sums;
  for (size_t from = 0; from < text.size(); from += n_rows) {
    const size_t n = std::min(n_rows, text.size() - from);
    truth.Next(text, from, n);
    model.Next(text, from, n);
    for (size_t i = 0; i < n; i++) {
      sums.Add(meshnet::agreement::Compare({truth.Row(i), n_vocab}, {model.Row(i), n_vocab}));
    }
  }
  return sums;
}

void Run(const Options & o) {
  const std::vector<Text> texts = ReadTexts(o.texts);
  size_t longest = 0;
  uint64_t n_rows = 0;
  for (const Text & text : texts) {
    longest = std::max(longest, text.size());
    n_rows += text.size();
  }
  ModelSource model(o.model, o, longest);
  std::unique_ptr<Source> truth;
  if (o.logits.empty()) truth = std::make_unique<ModelSource>(o.truth, o, longest);
  else truth = std::make_unique<FileSource>(o.logits, model.n_vocab(), n_rows);
  if (truth->n_vocab() != model.n_vocab()) throw std::runtime_error("the vocabularies are not of one size");
  Sums all;
  json each = json::array();
  for (const Text & text : texts) {
    const Sums sums = CompareText(*truth, model, text, o.n_rows);
    all.Add(sums);
    each.push_back(Report(sums));
  }
  json out = Report(all);
  out["engine"] = model.engine();
  out["texts"] = each;
  std::printf("%s\n", out.dump().c_str());
}

Options Parse(int argc, char ** argv) {
  Options o;
  if (argc % 2 == 0) throw std::runtime_error("every option has a value");
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--truth") o.truth = value;
    else if (name == "--logits") o.logits = value;
    else if (name == "--model") o.model = value;
    else if (name == "--texts") o.texts = value;
    else if (name == "--threads") o.n_threads = std::stoi(value);
    else if (name == "--rows") o.n_rows = static_cast<uint32_t>(std::stoul(value));
    else throw std::runtime_error("unknown option " + name);
  }
  if (o.model.empty() || o.texts.empty() || o.truth.empty() == o.logits.empty()) {
    throw std::runtime_error("--model, --texts and one of --truth and --logits are needed");
  }
  return o;
}

}  // namespace

int main(int argc, char ** argv) {
  return meshnet::ToolMain(argc, argv, "meshnet-bench-agreement", kUsage, [&] {
    Run(Parse(argc, argv));
    return 0;
  });
}
