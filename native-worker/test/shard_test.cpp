// Shard against bad ranges, broken files and wrong calls. Run with the path of a small Llama model of three layers.
#include "shard.h"

#include <ggml-backend.h>
#include <gguf.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "gguf_check.h"

namespace meshnet {
namespace {

int n_failed = 0;

void Check(bool ok, const std::string & what) {
  if (ok) return;
  n_failed++;
  std::fprintf(stderr, "FAILED: %s\n", what.c_str());
}

void CheckCode(const Status & status, Code code, const std::string & what) {
  Check(status.code() == code, what + ": code " + std::to_string(static_cast<int>(status.code())) + " " + status.message());
}

struct GgufFree {
  void operator()(gguf_context * ctx) const { gguf_free(ctx); }
};
using Gguf = std::unique_ptr<gguf_context, GgufFree>;

// What prompts cost depends on it: a vector that straddles two cache lines is loaded and stored twice.
void TestAlignment() {
  Check(ggml_backend_buft_get_alignment(ggml_backend_cpu_buffer_type()) % 64 == 0, "tensors begin on a cache line");
}

ShardParams Params(const std::string & path) {
  ShardParams p;
  p.model_path = path;
  p.n_ctx = 256;
  p.n_seq_max = 4;
  p.n_ubatch = 16;
  p.n_logits_max = 4;
  return p;
}

Status TryLoad(const std::string & path, int32_t first = 0, int32_t last = -1) {
  ShardParams p = Params(path);
  p.layer_first = first;
  p.layer_last = last;
  std::unique_ptr<Shard> shard;
  return Shard::Load(p, &shard);
}

std::string ReadFile(const std::string & path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void WriteFile(const std::string & path, const std::string & bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// A copy of the model whose keys `edit` has changed.
void WriteEdited(const std::string & model, const std::string & target, const std::function<void(gguf_context *)> & edit) {
  const Gguf ctx(gguf_init_from_file(model.c_str(), {true, nullptr}));
  const std::string data = ReadFile(model).substr(gguf_get_data_offset(ctx.get()));
  edit(ctx.get());
  gguf_write_to_file(ctx.get(), target.c_str(), /*only_meta=*/true);
  std::ofstream(target, std::ios::binary | std::ios::app).write(data.data(), static_cast<std::streamsize>(data.size()));
}

void TestRanges(const std::string & model) {
  const std::pair<int32_t, int32_t> bad[] = {{-1, 2}, {0, 0}, {1, 1}, {2, 1}, {0, 4}, {3, 3}, {3, -1}, {3, 4}, {0, -2}, {INT32_MIN, 2}, {0, INT32_MAX}};
  for (const auto & [first, last] : bad) {
    CheckCode(TryLoad(model, first, last), Code::kRangeInvalid, "range " + std::to_string(first) + "-" + std::to_string(last));
  }
  for (const auto & [first, last] : {std::pair{0, 1}, {1, 2}, {2, 3}, {0, 3}}) {
    CheckCode(TryLoad(model, first, last), Code::kOk, "range " + std::to_string(first) + "-" + std::to_string(last));
  }
}

void TestBrokenFiles(const std::string & model, const std::string & scratch) {
  const std::string whole = ReadFile(model);
  CheckCode(TryLoad(scratch + ".missing"), Code::kModelCorrupt, "no file");
  const size_t n = whole.size();
  for (const size_t size : {size_t{0}, size_t{3}, size_t{8}, size_t{24}, size_t{100}, n / 100, n / 10, n / 2, n - 1}) {
    WriteFile(scratch, whole.substr(0, size));
    CheckCode(TryLoad(scratch), Code::kModelCorrupt, "cut to " + std::to_string(size));
    CheckCode(TryLoad(scratch, 0, 1), Code::kModelCorrupt, "a range, cut to " + std::to_string(size));
  }
  WriteFile(scratch, std::string(4096, 'x'));
  CheckCode(TryLoad(scratch), Code::kModelCorrupt, "not a GGUF");

  // Any byte of the keys and tensor descriptions behind the vocabulary may be wrong: an error or not, never a crash.
  const Gguf ctx(gguf_init_from_file(model.c_str(), {true, nullptr}));
  const size_t end = gguf_get_data_offset(ctx.get());
  std::mt19937 random(7);
  for (int i = 0; i < 400; i++) {
    std::string bytes = whole;
    const size_t at = end - 1 - random() % 3200;
    bytes[at] = static_cast<char>(bytes[at] ^ (1u << random() % 8));
    WriteFile(scratch, bytes);
    const Status status = TryLoad(scratch, static_cast<int32_t>(random() % 3));
    Check(status.ok() || status.code() == Code::kModelCorrupt || status.code() == Code::kRangeInvalid ||
              status.code() == Code::kNotCertified || status.code() == Code::kNoCapacity,
          "byte " + std::to_string(at) + ": " + status.message());
  }
}

void TestKeys(const std::string & model, const std::string & scratch) {
  const auto with = [&](const char * what, Code code, const std::function<void(gguf_context *)> & edit) {
    WriteEdited(model, scratch, edit);
    CheckCode(TryLoad(scratch, 0, 1), code, what);
  };
  const auto number = [&](const char * key, uint32_t value) {
    with(key, Code::kModelCorrupt, [&](gguf_context * c) { gguf_set_val_u32(c, key, value); });
  };
  with("unchanged", Code::kOk, [](gguf_context *) {});
  number("llama.block_count", 0);
  number("llama.block_count", 513);
  number("llama.block_count", 4);
  number("llama.embedding_length", 0);
  number("llama.embedding_length", 128);
  number("llama.attention.head_count", 0);
  number("llama.attention.head_count", 7);
  number("llama.attention.head_count_kv", 3);
  number("llama.attention.key_length", 31);
  number("llama.feed_forward_length", 64);
  number("llama.expert_count", 8);
  number("llama.nextn_predict_layers", 1);
  number("split.count", 2);
  number("tokenizer.ggml.tokens", 1);
  number("tokenizer.ggml.model", 1);
  number("general.architecture", 1);
  for (const char * key : {"llama.block_count", "llama.context_length", "llama.attention.layer_norm_rms_epsilon",
                           "tokenizer.ggml.tokens", "tokenizer.ggml.model", "general.architecture"}) {
    with(key, Code::kModelCorrupt, [&](gguf_context * c) { gguf_remove_key(c, key); });
  }
  with("rope scaling", Code::kModelCorrupt, [](gguf_context * c) { gguf_set_val_str(c, "llama.rope.scaling.type", "odd"); });
  with("scores", Code::kModelCorrupt, [](gguf_context * c) {
    const float score = 0;
    gguf_set_arr_data(c, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, &score, 1);
  });
  with("tokenizer", Code::kModelCorrupt, [](gguf_context * c) { gguf_set_val_str(c, "tokenizer.ggml.model", "odd"); });
  with("another architecture", Code::kNotCertified, [](gguf_context * c) {
    gguf_set_val_str(c, "general.architecture", "gpt2");
    gguf_set_val_u32(c, "gpt2.block_count", 3);
  });
  with("no architecture at all", Code::kNotCertified, [](gguf_context * c) {
    gguf_set_val_str(c, "general.architecture", "odd");
    gguf_set_val_u32(c, "odd.block_count", 3);
  });
}

void TestDecode(const std::string & model) {
  std::unique_ptr<Shard> shard;
  CheckCode(Shard::Load(Params(model), &shard), Code::kOk, "load");
  if (!shard) return;
  const auto decode = [&](std::vector<Row> rows) { return shard->Decode(rows, nullptr); };
  CheckCode(decode({}), Code::kLimitExceeded, "no rows");
  CheckCode(decode(std::vector<Row>(17)), Code::kLimitExceeded, "too many rows");
  CheckCode(decode({{5, 1, 0, false}}), Code::kPositionInvalid, "a gap");
  CheckCode(decode({{-1, 0, 0, false}}), Code::kTokenInvalid, "a negative token");
  CheckCode(decode({{1 << 30, 0, 0, false}}), Code::kTokenInvalid, "a token beyond the vocabulary");
  CheckCode(decode({{5, 0, 4, false}}), Code::kInternal, "a sequence id out of range");
  std::vector<Row> many;
  for (int32_t i = 0; i < 5; i++) many.push_back({5, i, 0, true});
  CheckCode(decode(many), Code::kLimitExceeded, "too many logits");

  CheckCode(decode({{5, 0, 0, false}, {6, 1, 0, true}, {7, 0, 3, false}}), Code::kOk, "two sequences");
  Check(shard->logits(0) == nullptr && shard->logits(1) != nullptr && shard->logits(3) == nullptr, "logits only where wanted");
  Check(shard->boundary_out() == nullptr, "a tail has no boundary");
  CheckCode(decode({{5, 2, 0, false}, {5, 2, 0, false}}), Code::kPositionInvalid, "a repeated position");
  CheckCode(decode({{5, 2, 0, true}}), Code::kOk, "nothing was lost by the refusals");
  Check(shard->MinRewind(0) == 0, "full attention goes back to 0");
  CheckCode(shard->Truncate(0, 1), Code::kOk, "truncate");
  CheckCode(decode({{5, 1, 0, true}}), Code::kOk, "continue after truncate");
  shard->Clear(0);
  CheckCode(decode({{5, 0, 0, true}}), Code::kOk, "start again after clear");

  // A decode that breaks off in the middle leaves nothing behind.
  ShardParams breaking = Params(model);
  bool broken = false;
  breaking.give_up = [&](std::span<const Row>) { return broken; };
  std::unique_ptr<Shard> fragile;
  CheckCode(Shard::Load(breaking, &fragile), Code::kOk, "load with a way to fail");
  if (!fragile) return;
  CheckCode(fragile->Decode(std::vector<Row>{{5, 0, 0, true}}, nullptr), Code::kOk, "a decode before the failure");
  const std::vector<Row> two = {{6, 1, 0, false}, {7, 2, 0, true}};
  broken = true;
  CheckCode(fragile->Decode(two, nullptr), Code::kDecodeFailed, "broken off");
  Check(fragile->logits(1) == nullptr, "no logits of a decode that failed");
  broken = false;
  CheckCode(fragile->Truncate(0, 1), Code::kOk, "back to where it was");
  CheckCode(fragile->Decode(two, nullptr), Code::kOk, "once more");

  // Cells run out: the batch fails, what was there stays usable.
  int32_t pos = 1;
  Status status;
  while ((status = decode({{5, pos, 0, false}, {6, pos + 1, 0, false}, {7, pos + 2, 0, false}})).ok()) pos += 3;
  CheckCode(status, Code::kDecodeFailed, "no free cells");
  Check(pos > 240, "most cells were used");
  shard->Clear(3);
  CheckCode(shard->Truncate(0, 10), Code::kOk, "truncate when full");
  CheckCode(decode({{5, 10, 0, true}}), Code::kOk, "decode after making room");
}

void TestProgress(const std::string & model) {
  ShardParams p = Params(model);
  float highest = 0;
  bool ordered = true;
  p.on_progress = [&](float value) {
    ordered = ordered && value >= highest && value <= 1;
    highest = value;
    return true;
  };
  std::unique_ptr<Shard> shard;
  CheckCode(Shard::Load(p, &shard), Code::kOk, "load with progress");
  Check(ordered && highest == 1, "progress grows to 1");
  p.layer_first = 1;
  highest = 0;
  CheckCode(Shard::Load(p, &shard), Code::kOk, "load a range with progress");
  Check(ordered && highest == 1, "a range's progress grows to 1");
  p.on_progress = [](float) { return false; };
  CheckCode(Shard::Load(p, &shard), Code::kCancelled, "cancelled load");
}

}  // namespace
}  // namespace meshnet

int main(int argc, char ** argv) {
  if (argc != 2) return 2;
  const std::string model = argv[1], scratch = model + ".broken";
  meshnet::TestAlignment();
  meshnet::TestRanges(model);
  meshnet::TestDecode(model);
  meshnet::TestProgress(model);
  meshnet::TestKeys(model, scratch);
  meshnet::TestBrokenFiles(model, scratch);
  std::filesystem::remove(scratch);
  std::fprintf(stderr, "shard_test: %d failed\n", meshnet::n_failed);
  return meshnet::n_failed == 0 ? 0 : 1;
}
