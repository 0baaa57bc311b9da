// TextVocabulary: what llama.cpp knows about the text of a model, without its weights.
// Threads: methods are const and may be called from several threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "status.h"

namespace meshnet {

// What one call may bring or give back. The gateway's own limits lie below these.
inline constexpr size_t kMaxTextJsonBytes = 8 << 20;  // the same with every character escaped once more
inline constexpr size_t kMaxPromptBytes = 16 << 20;   // a template may repeat its input
inline constexpr size_t kMaxTextTokens = 1 << 20;
inline constexpr size_t kMaxSchemaBytes = 64 * 1024;
inline constexpr int kMaxJsonDepth = 64;

struct TextFacts {
  uint32_t n_vocab = 0;
  int32_t bos = -1;  // -1: there is none
  int32_t eos = -1;
  std::vector<int32_t> end_ids;  // ascending
  bool has_chat_template = false;
  uint32_t n_ctx_train = 0;
  std::string architecture;
};

class TextVocabulary {
 public:
  // kModelCorrupt: no GGUF file with a vocabulary. Tensor contents are not read, so they may be holes.
  static Status Load(const std::string & path, std::unique_ptr<TextVocabulary> * out);
  ~TextVocabulary();

  const TextFacts & facts() const;

  // kLimitExceeded; kContextFull: longer than n_ctx_train tokens can be, whichever they are, so that tokenising it
  // would be a waste of seconds. *ids is written on success only, here and below.
  Status Tokenize(const std::string & text, bool add_special, bool parse_special, std::vector<int32_t> * ids) const;
  // OpenAI messages and tools as JSON ("" for none), by the model's chat template, or ChatML when it has none.
  // kMalformed: not JSON. kTurnInvalid: the template refuses these messages or is broken. And as Tokenize.
  Status Render(const std::string & messages_json, const std::string & tools_json, bool add_generation_prompt,
                std::string * prompt, std::vector<int32_t> * ids) const;
  // kTokenInvalid, kLimitExceeded.
  Status Pieces(const std::vector<int32_t> & ids, bool special, std::vector<std::string> * pieces) const;
  // kMalformed: not JSON. kGrammarInvalid: the schema has no grammar, or one above kMaxGrammarBytes. kLimitExceeded.
  Status GrammarFromSchema(const std::string & json_schema, std::string * grammar) const;

 private:
  struct Impl;
  explicit TextVocabulary(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace meshnet
