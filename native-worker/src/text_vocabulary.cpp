#include "text_vocabulary.h"

#include <ggml.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <stdexcept>

#include "bounds.h"
#include "chat.h"
#include "common.h"
#include "gguf_check.h"
#include "sampler_grammar_check.h"
#include "json-schema-to-grammar.h"
#include "json.h"
#include "llama.h"
#include "log.h"

namespace meshnet {
namespace {

struct ModelFree {
  void operator()(llama_model * model) const { llama_model_free(model); }
};

// Whether brackets nest at most kMaxJsonDepth deep: what walks the document later does so by recursion.
bool DepthOk(const std::string & json) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) {
        return false;
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return true;
}

Status ParseJson(const std::string & text, size_t max_bytes, const char * what, common_json * out) {
  if (text.size() > max_bytes) {
    return {Code::kLimitExceeded, std::string(what) + ": " + std::to_string(text.size()) + " bytes of JSON, at most " +
                                      std::to_string(max_bytes)};
  }
  if (!DepthOk(text)) {
    return {Code::kLimitExceeded, std::string(what) + " nests deeper than " + std::to_string(kMaxJsonDepth)};
  }
  try {
    *out = common_json::parse(text);
  } catch (const std::exception &) {
    // The text of the exception quotes the input.
    return {Code::kMalformed, std::string(what) + " is not JSON"};
  }
  return Status::Ok();
}

// References to other documents are resolved to nothing by llama.cpp, so they would allow anything.
bool RefersOutside(const common_json & node) {
  if (node.is_object() && node.contains("$ref")) {
    const common_json & ref = node.at("$ref");
    if (!ref.is_string() || !ref.get<std::string>().starts_with("#/")) {
      return true;
    }
  }
  if (node.is_object()) {
    for (const auto & item : node.items()) {
      if (RefersOutside(item.value())) {
        return true;
      }
    }
  } else if (node.is_array()) {
    for (const auto & item : node) {
      if (RefersOutside(item)) {
        return true;
      }
    }
  }
  return false;
}

// A template without a place for tools leaves them out without a word.
Status CheckTools(const common_chat_templates_inputs & inputs, const std::map<std::string, bool> & caps) {
  const auto can = [&caps](const char * what) {
    const auto found = caps.find(what);
    return found != caps.end() && found->second;
  };
  if (!inputs.tools.empty() && !can("supports_tools")) {
    return {Code::kTurnInvalid, "the chat template of the model has no place for tools"};
  }
  for (const common_chat_msg & message : inputs.messages) {
    if (!message.tool_calls.empty() && !can("supports_tool_calls")) {
      return {Code::kTurnInvalid, "the chat template of the model has no place for tool calls"};
    }
  }
  return Status::Ok();
}

std::string Metadata(const llama_model * model, const std::string & key) {
  std::vector<char> value(256);
  const int32_t n = llama_model_meta_val_str(model, key.c_str(), value.data(), value.size());
  return n < 0 ? "" : std::string(value.data());
}

}  // namespace

struct TextVocabulary::Impl {
  std::unique_ptr<llama_model, ModelFree> model;
  const llama_vocab * vocab = nullptr;
  common_chat_templates_ptr templates;  // null: the model's template cannot be parsed
  TextFacts facts;
  size_t longest_piece = 0;  // bytes
};

TextVocabulary::TextVocabulary(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TextVocabulary::~TextVocabulary() = default;

const TextFacts & TextVocabulary::facts() const { return impl_->facts; }

Status TextVocabulary::Load(const std::string & path, std::unique_ptr<TextVocabulary> * out) {
  GgufSummary summary;
  if (Status status = CheckGguf(path, &summary); !status.ok()) {
    return status;
  }
  // A failed assertion is an error of one call, not the end of the process.
  ggml_set_abort_callback([](const char * what) { throw std::runtime_error(what); });
  llama_log_set(
      [](ggml_log_level level, const char * text, void *) {
        if (level == GGML_LOG_LEVEL_WARN || level == GGML_LOG_LEVEL_ERROR) {
          std::fputs(text, stderr);
        }
      },
      nullptr);
  // What llama.cpp logs about a template may quote messages.
  common_log_set_verbosity_thold(LOG_LEVEL_ERROR);
  try {
    auto impl = std::make_unique<Impl>();
    llama_model_params params = llama_model_default_params();
    params.vocab_only = true;
    impl->model.reset(llama_model_load_from_file(path.c_str(), params));
    if (!impl->model) {
      return {Code::kModelCorrupt, path + ": llama.cpp cannot read its vocabulary"};
    }
    impl->vocab = llama_model_get_vocab(impl->model.get());
    TextFacts & facts = impl->facts;
    facts.n_vocab = llama_vocab_n_tokens(impl->vocab);
    if (facts.n_vocab == 0) {
      return {Code::kModelCorrupt, path + ": the file has no vocabulary"};
    }
    facts.bos = llama_vocab_bos(impl->vocab);
    facts.eos = llama_vocab_eos(impl->vocab);
    for (uint32_t id = 0; id < facts.n_vocab; ++id) {
      if (llama_vocab_is_eog(impl->vocab, static_cast<llama_token>(id))) {
        facts.end_ids.push_back(static_cast<int32_t>(id));
      }
      impl->longest_piece = std::max(impl->longest_piece, common_token_to_piece(impl->vocab, id, true).size());
    }
    facts.architecture = summary.architecture;
    facts.n_ctx_train =
        std::strtoul(Metadata(impl->model.get(), summary.architecture + ".context_length").c_str(), nullptr, 10);
    try {
      impl->templates = common_chat_templates_init(impl->model.get(), "");
      facts.has_chat_template = common_chat_templates_was_explicit(impl->templates.get());
    } catch (const std::exception &) {
      // Everything but Render works without it.
      facts.has_chat_template = true;
    }
    out->reset(new TextVocabulary(std::move(impl)));
    return Status::Ok();
  } catch (const std::exception & e) {
    return {Code::kModelCorrupt, path + ": " + e.what()};
  }
}

Status TextVocabulary::Tokenize(const std::string & text, bool add_special, bool parse_special,
                                std::vector<int32_t> * ids) const {
  if (text.size() > kMaxPromptBytes) {
    return {Code::kLimitExceeded,
            "a text of " + std::to_string(text.size()) + " bytes, at most " + std::to_string(kMaxPromptBytes)};
  }
  const size_t most = size_t{impl_->facts.n_ctx_train} * impl_->longest_piece;
  if (most > 0 && text.size() > most) {
    return {Code::kContextFull, "a text of " + std::to_string(text.size()) + " bytes; the " +
                                    std::to_string(impl_->facts.n_ctx_train) + " tokens of a context hold at most " +
                                    std::to_string(most)};
  }
  try {
    std::vector<int32_t> result = common_tokenize(impl_->vocab, text, add_special, parse_special);
    if (result.size() > kMaxTextTokens) {
      return {Code::kLimitExceeded,
              "a text of " + std::to_string(result.size()) + " tokens, at most " + std::to_string(kMaxTextTokens)};
    }
    *ids = std::move(result);
    return Status::Ok();
  } catch (const std::exception & e) {
    return {Code::kTurnInvalid, std::string("the text cannot be tokenised: ") + e.what()};
  }
}

Status TextVocabulary::Render(const std::string & messages_json, const std::string & tools_json,
                              bool add_generation_prompt, std::string * prompt, std::vector<int32_t> * ids) const {
  if (!impl_->templates) {
    return {Code::kTurnInvalid, "the chat template of the model cannot be parsed"};
  }
  common_json messages;
  if (Status status = ParseJson(messages_json, kMaxTextJsonBytes, "messages", &messages); !status.ok()) {
    return status;
  }
  common_json tools;
  if (!tools_json.empty()) {
    if (Status status = ParseJson(tools_json, kMaxTextJsonBytes, "tools", &tools); !status.ok()) {
      return status;
    }
  }
  std::string text;
  try {
    common_chat_templates_inputs inputs;
    inputs.messages = common_chat_msgs_parse_oaicompat(messages);
    if (!tools_json.empty()) {
      inputs.tools = common_chat_tools_parse_oaicompat(tools);
    }
    inputs.add_generation_prompt = add_generation_prompt;
    if (Status status = CheckTools(inputs, common_chat_templates_get_caps(impl_->templates.get())); !status.ok()) {
      return status;
    }
    text = common_chat_templates_apply(impl_->templates.get(), inputs).prompt;
  } catch (const std::exception & e) {
    return {Code::kTurnInvalid, std::string("the chat template refuses these messages: ") + e.what()};
  }
  std::vector<int32_t> result;
  // The template writes control tokens as text; a leading BOS of the template has been taken off by llama.cpp.
  if (Status status = Tokenize(text, /*add_special=*/true, /*parse_special=*/true, &result); !status.ok()) {
    return status;
  }
  *prompt = std::move(text);
  *ids = std::move(result);
  return Status::Ok();
}

Status TextVocabulary::Pieces(const std::vector<int32_t> & ids, bool special, std::vector<std::string> * pieces) const {
  if (ids.size() > kMaxTextTokens) {
    return {Code::kLimitExceeded, std::to_string(ids.size()) + " ids, at most " + std::to_string(kMaxTextTokens)};
  }
  std::vector<std::string> result;
  result.reserve(ids.size());
  for (const int32_t id : ids) {
    if (id < 0 || static_cast<uint32_t>(id) >= impl_->facts.n_vocab) {
      return {Code::kTokenInvalid,
              "id " + std::to_string(id) + " is outside the vocabulary of " + std::to_string(impl_->facts.n_vocab)};
    }
    try {
      result.push_back(common_token_to_piece(impl_->vocab, id, special));
    } catch (const std::exception & e) {
      return {Code::kTokenInvalid, "id " + std::to_string(id) + " has no text: " + e.what()};
    }
  }
  *pieces = std::move(result);
  return Status::Ok();
}

Status TextVocabulary::GrammarFromSchema(const std::string & json_schema, std::string * grammar) const {
  common_json schema;
  if (Status status = ParseJson(json_schema, kMaxSchemaBytes, "the schema", &schema); !status.ok()) {
    return status;
  }
  std::string result;
  try {
    if (RefersOutside(schema)) {
      return {Code::kGrammarInvalid, "the schema has a $ref that does not begin with #/"};
    }
    result = json_schema_to_grammar(schema, /*force_gbnf=*/true);
  } catch (const std::exception & e) {
    return {Code::kGrammarInvalid, e.what()};
  }
  if (result.size() > kMaxGrammarBytes) {
    return {Code::kGrammarInvalid, "the schema becomes a grammar of " + std::to_string(result.size()) +
                                       " bytes, at most " + std::to_string(kMaxGrammarBytes)};
  }
  // The stage that samples would refuse it as well, but only after admission.
  try {
    if (Status status = CheckGrammar(result, impl_->vocab); !status.ok()) {
      return status;
    }
  } catch (const std::exception & e) {
    return {Code::kGrammarInvalid, std::string("the grammar of the schema cannot be compiled: ") + e.what()};
  }
  *grammar = std::move(result);
  return Status::Ok();
}

}  // namespace meshnet
