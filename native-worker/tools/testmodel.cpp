// Writes a small Llama model with random weights and a real vocabulary: the same options give the same bytes.
#include <ggml-cpp.h>
#include <gguf.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr const char * kUsage = R"(usage: meshnet-testmodel --out FILE [option value]...

  --preset 1b       the shape of a 1.1B Llama (d 2048, 22 layers, 32 heads, 4 KV heads, ffn 5632) in q4_0
  --type T          f32, f16, q8_0, q4_0, q4_1, q4_K, q6_K (default f16); K types need sizes divisible by 256
  --output-type T   token embedding and output head (default: as --type)
  --tied yes        the token embedding is the output head (default no)
  --layers N        1 to 512 (default 4)
  --embd N          width of the residual stream (default 256)
  --heads N         attention heads (default 8)
  --kv-heads N      key and value heads (default 4)
  --ffn N           feed-forward width (default 512)
  --ctx N           context length that the file claims (default 4096)
  --vocab NAME      a ggml-vocab-NAME.gguf of the llama.cpp tree, or a path (default llama-spm, 32000 tokens)
  --rope-base N     (default: the file says nothing, which means 10000)
  --vocab-size N    only the first N tokens of the vocabulary (default all); a SentencePiece one needs its first 259
  --seed N          of the weights (default 1)
)";

constexpr const char * kChatTemplate =
    "{% for message in messages %}{{ '<|' + message['role'] + '|>\\n' + message['content'] + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}";

struct Options {
  std::string out;
  std::string vocab = "llama-spm";
  ggml_type type = GGML_TYPE_F16;
  ggml_type output_type = GGML_TYPE_COUNT;
  bool tied = false;
  int64_t layers = 4, embd = 256, heads = 8, kv_heads = 4, ffn = 512, ctx = 4096, rope_base = 0, vocab_size = 0;
  uint64_t seed = 1;
};

ggml_type ParseType(const std::string & name) {
  for (const ggml_type type : {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0, GGML_TYPE_Q4_1,
                               GGML_TYPE_Q4_K, GGML_TYPE_Q6_K}) {
    if (name == ggml_type_name(type)) return type;
  }
  throw std::runtime_error("unknown type " + name);
}

Options Parse(int argc, char ** argv) {
  Options o;
  const std::map<std::string, int64_t *> numbers = {{"--layers", &o.layers},     {"--embd", &o.embd}, {"--heads", &o.heads},
                                                    {"--kv-heads", &o.kv_heads}, {"--ffn", &o.ffn},   {"--ctx", &o.ctx},
                                                    {"--rope-base", &o.rope_base}, {"--vocab-size", &o.vocab_size}};
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) throw std::runtime_error("no value for " + name);
    const std::string value = argv[i + 1];
    if (const auto number = numbers.find(name); number != numbers.end()) {
      *number->second = std::stoll(value);
      if (*number->second < 1) throw std::runtime_error(name + " must be positive");
    } else if (name == "--out") {
      o.out = value;
    } else if (name == "--vocab") {
      o.vocab = value;
    } else if (name == "--type") {
      o.type = ParseType(value);
    } else if (name == "--output-type") {
      o.output_type = ParseType(value);
    } else if (name == "--tied") {
      o.tied = value == "yes";
    } else if (name == "--seed") {
      o.seed = std::stoull(value);
    } else if (name == "--preset" && value == "1b") {
      o.layers = 22, o.embd = 2048, o.heads = 32, o.kv_heads = 4, o.ffn = 5632, o.ctx = 2048, o.type = GGML_TYPE_Q4_0;
    } else {
      throw std::runtime_error("unknown option " + name + " " + value);
    }
  }
  if (o.out.empty()) throw std::runtime_error("--out is needed");
  if (o.output_type == GGML_TYPE_COUNT) o.output_type = o.type;
  if (o.embd % o.heads != 0 || o.embd / o.heads % 2 != 0) throw std::runtime_error("--heads must cut --embd into even parts");
  if (o.heads % o.kv_heads != 0) throw std::runtime_error("--kv-heads must divide --heads");
  if (o.layers > 512) throw std::runtime_error("--layers is at most 512");
  return o;
}

// SplitMix64: of our own, so that no library decides over the bytes.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  // Near-normal with standard deviation 1: four 16-bit uniforms of one draw.
  float Normal() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    const int32_t sum = static_cast<int32_t>((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48));
    return static_cast<float>(sum - 2 * 65535) * (1.0f / 37837.0f);
  }

 private:
  uint64_t state_;
};

struct Spec {
  std::string name;
  ggml_type type;
  int64_t columns, rows;
  float mean, deviation;
};

// Deviations keep every block's contribution near 1 while the embedding stays tiny, so that the last token does not
// simply predict itself where it is also the output head; the large final norm makes up for it, so that logits have a
// deviation near 3. Attention adds less than the feed-forward part: at equal weight it averages all positions of a deep
// model to one state, and greedy text stands still.
std::vector<Spec> Tensors(const Options & o, int64_t n_vocab) {
  constexpr float kEmbedding = 0.01f, kMixing = 0.3f;
  const auto in = [](int64_t n) {
    float root = 1;
    while (root * root < static_cast<float>(n)) root += 1;
    return 1 / root;
  };
  const int64_t kv = o.embd / o.heads * o.kv_heads;
  std::vector<Spec> all = {{"token_embd.weight", o.output_type, o.embd, n_vocab, 0, kEmbedding}};
  for (int64_t i = 0; i < o.layers; i++) {
    const std::string p = "blk." + std::to_string(i) + ".";
    all.insert(all.end(), {{p + "attn_norm.weight", GGML_TYPE_F32, o.embd, 1, 1, 0.1f},
                           {p + "attn_q.weight", o.type, o.embd, o.embd, 0, in(o.embd)},
                           {p + "attn_k.weight", o.type, o.embd, kv, 0, in(o.embd)},
                           {p + "attn_v.weight", o.type, o.embd, kv, 0, in(o.embd)},
                           {p + "attn_output.weight", o.type, o.embd, o.embd, 0, kMixing * in(o.embd)},
                           {p + "ffn_norm.weight", GGML_TYPE_F32, o.embd, 1, 1, 0.1f},
                           {p + "ffn_gate.weight", o.type, o.embd, o.ffn, 0, in(o.embd)},
                           {p + "ffn_up.weight", o.type, o.embd, o.ffn, 0, in(o.embd)},
                           {p + "ffn_down.weight", o.type, o.ffn, o.embd, 0, in(o.ffn)}});
  }
  all.push_back({"output_norm.weight", GGML_TYPE_F32, o.embd, 1, 20, 2});
  if (!o.tied) all.push_back({"output.weight", o.output_type, o.embd, n_vocab, 0, kEmbedding});
  return all;
}

struct GgufFree {
  void operator()(gguf_context * ctx) const { gguf_free(ctx); }
};
using Gguf = std::unique_ptr<gguf_context, GgufFree>;

// Keeps the first n entries of an array that has one for each token: strings, or numbers of four bytes.
void CutArray(gguf_context * meta, const char * key, size_t n) {
  const int64_t id = gguf_find_key(meta, key);
  if (id < 0) return;
  if (gguf_get_arr_type(meta, id) == GGUF_TYPE_STRING) {
    std::vector<std::string> entries;
    for (size_t i = 0; i < n; i++) entries.emplace_back(gguf_get_arr_str(meta, id, i));
    std::vector<const char *> pointers;
    for (const std::string & entry : entries) pointers.push_back(entry.c_str());
    gguf_set_arr_str(meta, key, pointers.data(), n);
  } else {
    const gguf_type type = gguf_get_arr_type(meta, id);
    const auto * data = static_cast<const char *>(gguf_get_arr_data(meta, id));
    const std::vector<char> entries(data, data + n * 4);
    gguf_set_arr_data(meta, key, type, entries.data(), n);
  }
}

// The tokenizer keys of a vocabulary file and our own hyperparameters. *n_vocab becomes the number of tokens.
Gguf Metadata(const Options & o, int64_t * n_vocab) {
  const bool is_path = o.vocab.find('/') != std::string::npos;
  const std::string path = is_path ? o.vocab : std::string(MESHNET_VOCAB_DIR) + "/ggml-vocab-" + o.vocab + ".gguf";
  const Gguf vocab(gguf_init_from_file(path.c_str(), {/*.no_alloc=*/true, /*.ctx=*/nullptr}));
  if (!vocab) throw std::runtime_error("cannot read the vocabulary " + path);
  const int64_t list = gguf_find_key(vocab.get(), "tokenizer.ggml.tokens");
  if (list < 0) throw std::runtime_error(path + " holds no tokenizer.ggml.tokens");
  *n_vocab = static_cast<int64_t>(gguf_get_arr_n(vocab.get(), list));

  Gguf meta(gguf_init_empty());
  gguf_set_kv(meta.get(), vocab.get());
  for (int64_t i = 0; i < gguf_get_n_kv(vocab.get()); i++) {
    const std::string key = gguf_get_key(vocab.get(), i);
    if (key.rfind("tokenizer.", 0) != 0) gguf_remove_key(meta.get(), key.c_str());
  }
  if (o.vocab_size > 0) {
    *n_vocab = std::min(*n_vocab, o.vocab_size);
    for (const char * name : {"tokens", "scores", "token_type"}) {
      CutArray(meta.get(), (std::string("tokenizer.ggml.") + name).c_str(), static_cast<size_t>(*n_vocab));
    }
  }
  gguf_set_val_str(meta.get(), "general.architecture", "llama");
  gguf_set_val_str(meta.get(), "general.name", "Meshnet test model");
  gguf_set_val_u32(meta.get(), "general.quantization_version", 2);
  const std::pair<const char *, int64_t> numbers[] = {
      {"block_count", o.layers},          {"context_length", o.ctx},
      {"embedding_length", o.embd},       {"feed_forward_length", o.ffn},
      {"attention.head_count", o.heads},  {"attention.head_count_kv", o.kv_heads},
      {"rope.dimension_count", o.embd / o.heads}, {"vocab_size", *n_vocab}};
  for (const auto & [key, value] : numbers) {
    gguf_set_val_u32(meta.get(), (std::string("llama.") + key).c_str(), static_cast<uint32_t>(value));
  }
  gguf_set_val_f32(meta.get(), "llama.attention.layer_norm_rms_epsilon", 1e-5f);
  if (o.rope_base > 0) gguf_set_val_f32(meta.get(), "llama.rope.freq_base", static_cast<float>(o.rope_base));
  gguf_set_val_str(meta.get(), "tokenizer.chat_template", kChatTemplate);
  return meta;
}

void WriteAll(std::FILE * file, const void * data, size_t size) {
  if (std::fwrite(data, 1, size, file) != size) throw std::runtime_error("cannot write: disk full?");
}

void WriteTensor(std::FILE * file, const Spec & spec, uint64_t seed, size_t alignment) {
  uint64_t hash = seed ^ 0xcbf29ce484222325u;
  for (const char c : spec.name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  Random random(hash);
  const size_t row_size = ggml_row_size(spec.type, spec.columns);
  const int64_t step = std::max<int64_t>(1, (1 << 18) / spec.columns);
  std::vector<float> values;
  std::vector<char> packed;
  for (int64_t row = 0; row < spec.rows; row += step) {
    const int64_t n = std::min(step, spec.rows - row);
    values.resize(static_cast<size_t>(n * spec.columns));
    for (float & value : values) value = spec.mean + spec.deviation * random.Normal();
    packed.resize(static_cast<size_t>(n) * row_size);
    ggml_quantize_chunk(spec.type, values.data(), packed.data(), 0, n, spec.columns, nullptr);
    WriteAll(file, packed.data(), packed.size());
  }
  const size_t size = row_size * static_cast<size_t>(spec.rows);
  const std::vector<char> padding((alignment - size % alignment) % alignment);
  WriteAll(file, padding.data(), padding.size());
}

struct FileClose {
  void operator()(std::FILE * file) const { std::fclose(file); }
};

void Generate(const Options & o) {
  int64_t n_vocab = 0;
  const Gguf meta = Metadata(o, &n_vocab);
  const std::vector<Spec> specs = Tensors(o, n_vocab);
  const ggml_context_ptr ctx(ggml_init({ggml_tensor_overhead() * specs.size(), nullptr, /*.no_alloc=*/true}));
  for (const Spec & spec : specs) {
    if (spec.columns % ggml_blck_size(spec.type) != 0) {
      throw std::runtime_error(spec.name + " has rows of " + std::to_string(spec.columns) + ", which " +
                               ggml_type_name(spec.type) + " cannot hold");
    }
    ggml_tensor * tensor = spec.rows == 1 ? ggml_new_tensor_1d(ctx.get(), spec.type, spec.columns)
                                          : ggml_new_tensor_2d(ctx.get(), spec.type, spec.columns, spec.rows);
    ggml_set_name(tensor, spec.name.c_str());
    gguf_add_tensor(meta.get(), tensor);
  }

  // A reader never sees half a model under the final name.
  const std::string part = o.out + ".part";
  if (!gguf_write_to_file(meta.get(), part.c_str(), /*only_meta=*/true)) throw std::runtime_error("cannot write " + part);
  std::unique_ptr<std::FILE, FileClose> file(std::fopen(part.c_str(), "ab"));
  if (!file) throw std::runtime_error("cannot append to " + part);
  for (const Spec & spec : specs) WriteTensor(file.get(), spec, o.seed, gguf_get_alignment(meta.get()));
  if (std::fclose(file.release()) != 0) throw std::runtime_error("cannot write: disk full?");
  if (std::rename(part.c_str(), o.out.c_str()) != 0) throw std::runtime_error("cannot rename to " + o.out);
}

}  // namespace

int main(int argc, char ** argv) {
  for (int i = 1; i < argc; i++) {
    if (std::string(argv[i]) == "--help") {
      std::fputs(kUsage, stdout);
      return 0;
    }
  }
  try {
    Generate(Parse(argc, argv));
  } catch (const std::exception & e) {
    std::fprintf(stderr, "meshnet-testmodel: %s\n%s", e.what(), argc == 1 ? kUsage : "");
    return 1;
  }
  return 0;
}
