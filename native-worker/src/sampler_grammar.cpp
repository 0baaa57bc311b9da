#include "sampler_grammar.h"

#include <llama.h>

#include <algorithm>

#include "sampler_automaton.h"

namespace meshnet {

void TokenPieces::Load() {
  const int32_t n = llama_vocab_n_tokens(vocab_);
  index_.assign(static_cast<size_t>(n), 0);
  std::vector<char> text(256);
  for (int32_t token = 0; token < n; token++) {
    if (llama_vocab_is_control(vocab_, token) || llama_vocab_is_eog(vocab_, token)) continue;
    int32_t size = llama_token_to_piece(vocab_, token, text.data(), static_cast<int32_t>(text.size()), 0, false);
    if (size < 0) {
      text.resize(static_cast<size_t>(-size));
      size = llama_token_to_piece(vocab_, token, text.data(), static_cast<int32_t>(text.size()), 0, false);
    }
    const std::string bytes(text.data(), static_cast<size_t>(std::max(0, size)));
    // A zero byte ends strings in too many places to be let into text.
    if (!bytes.empty() && bytes.find('\0') == std::string::npos) sorted_.push_back({token, bytes, 0});
  }
  std::sort(sorted_.begin(), sorted_.end(), [](const Piece & a, const Piece & b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.token < b.token;
  });
  for (size_t i = 0; i < sorted_.size(); i++) {
    index_[static_cast<size_t>(sorted_[i].token)] = i + 1;
    if (i == 0) continue;
    const std::string & a = sorted_[i - 1].bytes;
    const std::string & b = sorted_[i].bytes;
    const auto differ = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    sorted_[i].shared = static_cast<uint32_t>(differ.first - a.begin());
  }
}

const std::vector<TokenPieces::Piece> & TokenPieces::sorted() {
  if (index_.empty()) Load();
  return sorted_;
}

const std::string & TokenPieces::of(int32_t token) {
  static const std::string none;
  if (index_.empty()) Load();
  const size_t place = index_[static_cast<size_t>(token)];
  return place == 0 ? none : sorted_[place - 1].bytes;
}

Grammar::Grammar(TokenPieces * pieces) : pieces_(pieces) {}
Grammar::~Grammar() = default;

Status Grammar::Create(const std::string & text, TokenPieces * pieces, std::unique_ptr<Grammar> * out,
                       GrammarBudget::Clock clock) {
  llama_grammar_rules rules;
  size_t root = 0;
  if (Status s = ParseGrammar(text, pieces->vocab(), &rules, &root); !s.ok()) return s;
  (void)pieces->sorted();  // read at the first use, which is not this grammar's to pay for
  std::unique_ptr<Grammar> grammar(new Grammar(pieces));
  grammar->machine_ = std::make_unique<Machine>(std::move(rules), root, clock);
  grammar->state_.set = grammar->machine_->start();
  if (Status s = grammar->Checked(); !s.ok()) return s;
  *out = std::move(grammar);
  return {};
}

Status Grammar::Checked() {
  machine_->Pause();
  if (machine_->late()) return {Code::kGrammarInvalid, "the grammar takes too long"};
  if (machine_->exhausted()) return {Code::kGrammarInvalid, "the grammar is too ambiguous"};
  return {};
}

Grammar::State Grammar::After(State state, unsigned char byte) {
  constexpr State dead{Machine::kDead, 0, 0};
  if (state.missing > 0) {
    if (byte >> 6 != 2) return dead;
    state.value = state.value << 6 | (byte & 0x3FU);
    state.missing--;
    // A sequence longer than its code point needs is no UTF-8.
    if ((state.missing == 1 && state.value < 0x20) || (state.missing == 2 && state.value < 0x10)) return dead;
  } else if (byte < 0x80) {
    state.value = byte;
  } else if (byte >= 0xC2 && byte < 0xF5) {
    state.missing = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
    state.value = byte & (0x3FU >> state.missing);
  } else {
    return dead;
  }
  if (state.missing == 0) state.set = machine_->Step(state.set, state.value);
  return state;
}

bool Grammar::Alive(const State & state) {
  if (state.set == Machine::kDead || state.missing == 0) return state.set != Machine::kDead;
  const auto shift = static_cast<uint32_t>(state.missing) * 6;
  const uint32_t first = state.value << shift;
  const uint32_t shortest = state.missing == 1 ? 0 : state.missing == 2 ? 0x800 : 0x10000;
  return machine_->CanMatch(state.set, std::max(first, state.value == 0 ? shortest : 0), first | ((1U << shift) - 1));
}

Status Grammar::Fits(int32_t token, bool * fits) {
  machine_->Begin();
  if (llama_vocab_is_eog(pieces_->vocab(), token)) {
    *fits = state_.missing == 0 && machine_->CanEnd(state_.set);
    return {};
  }
  const std::string & bytes = pieces_->of(token);
  State state = state_;
  for (const char byte : bytes) state = After(state, static_cast<unsigned char>(byte));
  *fits = !bytes.empty() && Alive(state);
  return Checked();
}

Status Grammar::Allowed(std::vector<bool> * allowed) {
  machine_->Begin();
  const int32_t n = llama_vocab_n_tokens(pieces_->vocab());
  allowed->assign(static_cast<size_t>(n), false);
  if (state_.missing == 0 && machine_->CanEnd(state_.set)) {
    for (int32_t token = 0; token < n; token++) {
      if (llama_vocab_is_eog(pieces_->vocab(), token)) (*allowed)[static_cast<size_t>(token)] = true;
    }
  }
  std::vector<State> after = {state_};  // by number of leading bytes
  for (const TokenPieces::Piece & piece : pieces_->sorted()) {
    after.resize(std::min<size_t>(after.size(), piece.shared + 1));
    while (after.size() <= piece.bytes.size() && after.back().set != Machine::kDead) {
      after.push_back(After(after.back(), static_cast<unsigned char>(piece.bytes[after.size() - 1])));
    }
    if (after.size() <= piece.bytes.size()) continue;
    (*allowed)[static_cast<size_t>(piece.token)] = Alive(after.back());
  }
  return Checked();
}

Status Grammar::Accept(int32_t token) {
  machine_->Begin();
  if (llama_vocab_is_eog(pieces_->vocab(), token)) return {};
  for (const char byte : pieces_->of(token)) state_ = After(state_, static_cast<unsigned char>(byte));
  state_.set = machine_->Compact(state_.set);
  const Status status = Checked();
  machine_->Refill();
  return status;
}

}  // namespace meshnet
