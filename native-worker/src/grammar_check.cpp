#include "grammar_check.h"

#include <algorithm>
#include <cstdint>

namespace meshnet {
namespace {

constexpr int kMaxDepth = 128;               // one group inside another; each costs the parser three stack frames
constexpr uint64_t kMaxRepetitions = 8192;   // rules that all {m,n} together become
constexpr uint64_t kMaxRepeated = 256 * 1024;  // elements that they copy

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

}  // namespace

Status CheckGrammar(std::string_view text) {
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

}  // namespace meshnet
