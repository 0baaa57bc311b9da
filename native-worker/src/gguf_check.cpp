#include "gguf_check.h"

#include <gguf.h>

#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>

namespace meshnet {
namespace {

constexpr uint64_t kMaxLayers = 512;  // LLAMA_MAX_LAYERS
constexpr uint64_t kMaxWidth = 1u << 20;
constexpr uint64_t kMaxHeads = 1u << 14;

struct GgufFree {
  void operator()(gguf_context * ctx) const { gguf_free(ctx); }
};

Status Corrupt(const std::string & what) { return {Code::kModelCorrupt, what}; }

// The typed getters of gguf abort on another type, so every read goes through here.
class Header {
 public:
  explicit Header(const gguf_context * ctx) : ctx_(ctx) {}

  std::optional<std::string_view> Text(const std::string & key) const {
    const int64_t id = gguf_find_key(ctx_, key.c_str());
    if (id < 0 || gguf_get_kv_type(ctx_, id) != GGUF_TYPE_STRING) return std::nullopt;
    return gguf_get_val_str(ctx_, id);
  }

  std::optional<uint64_t> Number(const std::string & key) const {
    const int64_t id = gguf_find_key(ctx_, key.c_str());
    if (id < 0) return std::nullopt;
    switch (gguf_get_kv_type(ctx_, id)) {
      case GGUF_TYPE_UINT16: return gguf_get_val_u16(ctx_, id);
      case GGUF_TYPE_UINT32: return gguf_get_val_u32(ctx_, id);
      case GGUF_TYPE_UINT64: return gguf_get_val_u64(ctx_, id);
      case GGUF_TYPE_INT32: {
        const int32_t value = gguf_get_val_i32(ctx_, id);
        return value < 0 ? std::nullopt : std::optional<uint64_t>(value);
      }
      default: return std::nullopt;
    }
  }

  bool Has(const std::string & key) const { return gguf_find_key(ctx_, key.c_str()) >= 0; }

  // The length of an array with elements of `type`; nullopt when it is missing or something else.
  std::optional<uint64_t> ArrayLength(const std::string & key, gguf_type type) const {
    const int64_t id = gguf_find_key(ctx_, key.c_str());
    if (id < 0 || gguf_get_kv_type(ctx_, id) != GGUF_TYPE_ARRAY || gguf_get_arr_type(ctx_, id) != type) {
      return std::nullopt;
    }
    return gguf_get_arr_n(ctx_, id);
  }

 private:
  const gguf_context * ctx_;
};

Status CheckTensors(const gguf_context * ctx, uint64_t file_size) {
  const uint64_t data = gguf_get_data_offset(ctx);
  const int64_t n = gguf_get_n_tensors(ctx);
  if (n == 0) return Corrupt("the file holds no tensors");
  for (int64_t i = 0; i < n; i++) {
    const uint64_t offset = gguf_get_tensor_offset(ctx, i);
    const uint64_t size = gguf_get_tensor_size(ctx, i);
    if (data > file_size || offset > file_size - data || size > file_size - data - offset) {
      return Corrupt(std::string("the file ends before the data of tensor ") + gguf_get_tensor_name(ctx, i));
    }
  }
  return Status::Ok();
}

Status CheckVocabulary(const Header & header) {
  if (!header.Text("tokenizer.ggml.model")) return Corrupt("tokenizer.ggml.model is missing");
  const auto n_tokens = header.ArrayLength("tokenizer.ggml.tokens", GGUF_TYPE_STRING);
  if (!n_tokens || *n_tokens == 0) return Corrupt("tokenizer.ggml.tokens is not a list of strings");
  const std::array<std::pair<const char *, gguf_type>, 2> parallel = {
      {{"tokenizer.ggml.scores", GGUF_TYPE_FLOAT32}, {"tokenizer.ggml.token_type", GGUF_TYPE_INT32}}};
  for (const auto & [key, type] : parallel) {
    if (header.Has(key) && header.ArrayLength(key, type) != n_tokens) {
      return Corrupt(std::string(key) + " does not match tokenizer.ggml.tokens");
    }
  }
  const char * merges = "tokenizer.ggml.merges";
  if (header.Has(merges) && !header.ArrayLength(merges, GGUF_TYPE_STRING)) {
    return Corrupt(std::string(merges) + " is not a list of strings");
  }
  return Status::Ok();
}

// A hyperparameter that the Llama architecture needs as one plain number.
Status Need(const Header & header, const std::string & key, uint64_t max, uint64_t * out) {
  const auto value = header.Number(key);
  if (!value || *value == 0 || *value > max) return Corrupt(key + " is missing or out of range");
  *out = *value;
  return Status::Ok();
}

Status CheckLlama(const Header & header, uint64_t * n_layer) {
  const std::string p = "llama.";
  uint64_t n_embd = 0, n_head = 0, n_ff = 0, n_ctx = 0;
  const std::array<std::tuple<const char *, uint64_t, uint64_t *>, 5> needed = {{
      {"block_count", kMaxLayers, n_layer},
      {"embedding_length", kMaxWidth, &n_embd},
      {"attention.head_count", kMaxHeads, &n_head},
      {"feed_forward_length", kMaxWidth, &n_ff},
      {"context_length", UINT32_MAX, &n_ctx},
  }};
  for (const auto & [key, max, out] : needed) {
    if (Status s = Need(header, p + key, max, out); !s.ok()) return s;
  }
  const uint64_t n_head_kv = header.Number(p + "attention.head_count_kv").value_or(n_head);
  if (n_head_kv == 0 || n_head % n_head_kv != 0) return Corrupt(p + "attention.head_count_kv does not divide head_count");

  const uint64_t k = header.Number(p + "attention.key_length").value_or(n_embd / n_head);
  const uint64_t v = header.Number(p + "attention.value_length").value_or(n_embd / n_head);
  const uint64_t rot = header.Number(p + "rope.dimension_count").value_or(k);
  if (k == 0 || k > kMaxWidth || k % 2 != 0 || v != k || rot != k) return Corrupt("the attention head sizes contradict each other");

  const uint64_t n_expert = header.Number(p + "expert_count").value_or(0);
  const uint64_t n_used = header.Number(p + "expert_used_count").value_or(0);
  if (n_expert > 1024 || n_used > n_expert || (n_expert > 0) != (n_used > 0)) {
    return Corrupt(p + "expert_used_count does not match expert_count");
  }
  for (const char * key : {"expert_group_count", "expert_group_used_count", "nextn_predict_layers"}) {
    if (header.Number(p + key).value_or(0) != 0) return Corrupt(p + key + " has no meaning for this architecture");
  }
  const std::string_view scaling = header.Text(p + "rope.scaling.type").value_or("linear");
  if (scaling != "none" && scaling != "linear" && scaling != "yarn" && scaling != "longrope") {
    return Corrupt(p + "rope.scaling.type is unknown");
  }
  return Status::Ok();
}

}  // namespace

Status CheckGguf(const std::string & path, GgufSummary * out) {
  std::error_code error;
  const uint64_t file_size = std::filesystem::file_size(path, error);
  if (error) return Corrupt("cannot read " + path + ": " + error.message());

  const std::unique_ptr<gguf_context, GgufFree> ctx(gguf_init_from_file(path.c_str(), {/*.no_alloc=*/true, /*.ctx=*/nullptr}));
  if (!ctx) return Corrupt(path + " has no valid GGUF header");
  const Header header(ctx.get());

  const auto architecture = header.Text("general.architecture");
  if (!architecture) return Corrupt("general.architecture is missing");
  if (header.Number("split.count").value_or(0) > 1) return Corrupt("the model is split over several files; merge them first");
  if (Status s = CheckTensors(ctx.get(), file_size); !s.ok()) return s;
  if (Status s = CheckVocabulary(header); !s.ok()) return s;

  uint64_t n_layer = 0;
  if (*architecture == "llama") {
    if (Status s = CheckLlama(header, &n_layer); !s.ok()) return s;
  } else if (Status s = Need(header, std::string(*architecture) + ".block_count", kMaxLayers, &n_layer); !s.ok()) {
    return s;
  }
  out->architecture = *architecture;
  out->n_layer = static_cast<int32_t>(n_layer);
  return Status::Ok();
}

}  // namespace meshnet
