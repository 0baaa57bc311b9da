#include "sampler_grammar_check.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "sampler_automaton.h"

namespace meshnet {
namespace {

constexpr int kMaxDepth = 128;                 // one group inside another; each costs the parser three stack frames
constexpr uint64_t kMaxRepetitions = 8192;     // rules that all {m,n} together become
constexpr uint64_t kMaxRepeated = 256 * 1024;  // elements that they copy
constexpr uint64_t kMaxBeginnings = 4096;      // stacks that expanding one rule can give
constexpr int kMaxChain = 1000;                // rules that begin with each other, one in the next

// The end of a quoted string or class that begins at i, past its closing character.
size_t SkipQuoted(std::string_view text, size_t i, char close) {
  for (i++; i < text.size() && text[i] != close; i++) {
    if (text[i] == '\\') i++;
  }
  return i + 1;
}

// The largest number between i and the closing brace, capped; *end is past the brace.
uint64_t ReadCounts(std::string_view text, size_t i, size_t * end) {
  uint64_t largest = 0;
  uint64_t number = 0;
  for (; i < text.size() && text[i] != '}'; i++) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    number = digit ? std::min<uint64_t>(number * 10 + static_cast<uint64_t>(text[i] - '0'), kMaxRepetitions + 1) : 0;
    largest = std::max(largest, number);
  }
  *end = i + 1;
  return largest;
}

// Counts the ways in which each rule can begin: llama.cpp keeps one stack for each of them, and rules that refer to
// each other twice make their number exponential.
class Beginnings {
 public:
  explicit Beginnings(const llama_grammar_rules & rules) : rules_(rules), known_(rules.size()) {}

  // False: too many, too deep, left recursion, or a rule that nobody defines.
  bool Check() {
    for (const auto & rule : rules_) {
      for (const llama_grammar_element & element : rule) {
        if (element.type == LLAMA_GRETYPE_RULE_REF && !IsDefined(element.value)) return false;
        if (element.type == LLAMA_GRETYPE_TOKEN || element.type == LLAMA_GRETYPE_TOKEN_NOT) return false;
      }
    }
    for (size_t rule = 0; rule < rules_.size(); rule++) {
      if (!IsDefined(rule) || !Of(rule, 0)) return false;
    }
    return true;
  }

 private:
  enum class State { kUnknown, kRunning, kDone };
  struct Count {
    State state = State::kUnknown;
    uint64_t terminals = 0;  // ways to begin with a character
    uint64_t empty = 0;      // ways to be empty
  };

  bool IsDefined(size_t rule) const { return rule < rules_.size() && !rules_[rule].empty(); }

  static uint64_t Cap(uint64_t n) { return std::min(n, kMaxBeginnings + 1); }

  bool Of(size_t rule, int depth) {
    Count & count = known_[rule];
    if (count.state == State::kDone) return true;
    if (count.state == State::kRunning || depth > kMaxChain) return false;
    count.state = State::kRunning;
    uint64_t ways = 1;  // to get past what stands before this element of the alternate
    for (const llama_grammar_element & element : rules_[rule]) {
      switch (element.type) {
        case LLAMA_GRETYPE_END:
        case LLAMA_GRETYPE_ALT:
          count.empty = Cap(count.empty + ways);
          ways = 1;
          break;
        case LLAMA_GRETYPE_RULE_REF: {
          if (ways == 0) break;
          const auto next = static_cast<size_t>(element.value);
          if (!Of(next, depth + 1)) return false;
          count.terminals = Cap(count.terminals + ways * known_[next].terminals);
          ways = Cap(ways * known_[next].empty);
          break;
        }
        default:
          // A class is several elements; its first one is the character that counts.
          count.terminals = Cap(count.terminals + ways);
          ways = 0;
          break;
      }
      if (count.terminals + count.empty > kMaxBeginnings) return false;
    }
    count.state = State::kDone;
    return true;
  }

  const llama_grammar_rules & rules_;
  std::vector<Count> known_;
};

// Past white space and comments.
const char * SkipBlank(const char * pos) {
  while (*pos == ' ' || *pos == '\t' || *pos == '\r' || *pos == '\n' || *pos == '#') {
    if (*pos == '#') {
      while (*pos != 0 && *pos != '\n') pos++;
    } else {
      pos++;
    }
  }
  return pos;
}

Status CheckText(std::string_view text) {
  int depth = 0;
  uint64_t repetitions = 0;
  uint64_t repeated = 0;
  uint64_t symbol = 1;  // elements of the symbol that a repetition would copy
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '"' || c == '[') {
      const size_t end = SkipQuoted(text, i, c == '"' ? '"' : ']');
      symbol = end - i;
      i = end;
    } else if (c == '#') {
      i = std::min(text.find('\n', i), text.size());
    } else if (c == '{') {
      const uint64_t count = ReadCounts(text, i + 1, &i);
      repetitions += count;
      repeated += count * symbol;
      symbol = 1;
    } else {
      if (c == '(' && ++depth > kMaxDepth) return {Code::kGrammarInvalid, "groups are nested too deeply"};
      if (c == ')') depth--;
      if (c > ' ') symbol = 1;
      i++;
    }
    if (repetitions > kMaxRepetitions || repeated > kMaxRepeated) {
      return {Code::kGrammarInvalid, "the repetitions expand to too many rules"};
    }
  }
  return {};
}

}  // namespace

Status CheckGrammar(const std::string & text, const llama_vocab * vocab) {
  llama_grammar_rules rules;
  size_t root = 0;
  return ParseGrammar(text, vocab, &rules, &root);
}

Status ParseGrammar(const std::string & text, const llama_vocab * vocab, llama_grammar_rules * rules, size_t * root) {
  if (Status s = CheckText(text); !s.ok()) return s;
  llama_grammar_parser parser(vocab);
  try {
    // Rule by rule: the parser's own loop prints what it refuses, and a peer's text belongs in no log.
    for (const char * pos = SkipBlank(text.c_str()); *pos != 0;) pos = parser.parse_rule(pos);
  } catch (const std::exception &) {
    return {Code::kGrammarInvalid, "the grammar cannot be parsed"};
  }
  const auto it = parser.symbol_ids.find("root");
  if (it == parser.symbol_ids.end()) return {Code::kGrammarInvalid, "the grammar has no rule named root"};
  if (!Beginnings(parser.rules).Check()) {
    return {Code::kGrammarInvalid, "a rule of the grammar is missing, begins with itself, or begins in too many ways"};
  }
  *root = it->second;
  *rules = std::move(parser.rules);
  return {};
}

}  // namespace meshnet
