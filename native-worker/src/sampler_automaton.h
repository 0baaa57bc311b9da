// Grammar::Machine: the pushdown automaton of a GBNF grammar, determinised as far as it is walked.
// Threads: one at a time.
#pragma once

#include <llama-grammar.h>

#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sampler_budget.h"
#include "sampler_grammar.h"

namespace meshnet {

// CheckGrammar, and what llama.cpp's parser made of the text.
Status ParseGrammar(const std::string & text, const llama_vocab * vocab, llama_grammar_rules * rules, size_t * root);

class Grammar::Machine {
 public:
  static constexpr int32_t kDead = 0;  // the set without a stack

  Machine(llama_grammar_rules rules, size_t root, GrammarBudget::Clock clock);

  int32_t start() const { return start_; }
  // The set after a code point; kDead when nothing matches, or when a limit was passed.
  int32_t Step(int32_t set, uint32_t code_point);
  // The grammar may end here.
  bool CanEnd(int32_t set) const;
  // Some code point in [low, high] may come next.
  bool CanMatch(int32_t set, uint32_t low, uint32_t high);
  // A new token is looked at: work and time are counted from here, to Pause.
  void Begin() {
    work_ = 0;
    budget_.Begin();
  }
  void Pause() { budget_.Look(); }
  // A token was accepted: the next one has time of its own.
  void Refill() { budget_.Refill(); }
  // True once a limit was passed: the sets are not to be trusted any more.
  bool exhausted() const { return exhausted_ || late(); }
  // It was the time.
  bool late() const { return budget_.exhausted(); }
  // Forgets all sets but this one when memory fills up; gives its new number.
  int32_t Compact(int32_t set);

 private:
  using Element = llama_grammar_element;
  // A stack is a top and the stack below it; equal stacks have equal numbers. 0 is the empty one.
  struct Node {
    const Element * top = nullptr;
    int32_t below = 0;
    uint32_t depth = 0;
  };
  struct PairHash {
    size_t operator()(const std::pair<const Element *, int32_t> & key) const {
      return std::hash<const Element *>()(key.first) * 31 + static_cast<size_t>(key.second);
    }
  };

  void Work(uint64_t n);
  int32_t Push(const Element * top, int32_t below);
  // Adds the stacks with a character on top that the stack expands to.
  void Expand(int32_t stack, std::vector<int32_t> * out);
  int32_t SetOf(std::vector<int32_t> stacks);
  void Clear();

  llama_grammar_rules rules_;
  std::vector<Node> nodes_;
  std::unordered_map<std::pair<const Element *, int32_t>, int32_t, PairHash> node_of_;
  std::vector<std::vector<int32_t>> sets_;
  std::map<std::vector<int32_t>, int32_t> set_of_;
  std::unordered_map<uint64_t, int32_t> step_of_;
  size_t n_in_sets_ = 0;
  uint64_t work_ = 0;
  GrammarBudget budget_;
  int32_t start_ = kDead;
  bool exhausted_ = false;
};

}  // namespace meshnet
