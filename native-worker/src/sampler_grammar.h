// Grammar: which tokens may come next under a GBNF text. llama.cpp parses it; the matching is ours, because a worker
// serves strangers: equal stacks are merged and transitions remembered, so an ambiguous grammar ends at a limit, not in
// hours.
// Threads: one at a time; TokenPieces any number once they are read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sampler_budget.h"
#include "status.h"

struct llama_vocab;

namespace meshnet {

// The bytes of every token that has some, sorted, so that a walk shares the work of common prefixes. Control tokens
// have none.
class TokenPieces {
 public:
  struct Piece {
    int32_t token = 0;
    std::string bytes;
    uint32_t shared = 0;  // leading bytes equal to those of the piece before
  };

  // `vocab` outlives it. Reads the vocabulary at the first use.
  explicit TokenPieces(const llama_vocab * vocab) : vocab_(vocab) {}

  const std::vector<Piece> & sorted();
  // Empty: none.
  const std::string & of(int32_t token);
  const llama_vocab * vocab() const { return vocab_; }

 private:
  void Load();

  const llama_vocab * vocab_;
  std::vector<Piece> sorted_;
  std::vector<size_t> index_;  // by token: place in sorted_, from 1; 0: none
};

class Grammar {
 public:
  // `pieces` outlives it. `clock` is what its time is taken by. kGrammarInvalid: see ParseGrammar.
  static Status Create(const std::string & text, TokenPieces * pieces, std::unique_ptr<Grammar> * out,
                       GrammarBudget::Clock clock = ThreadCpuUs);
  ~Grammar();

  // kGrammarInvalid from each of these: the grammar is too ambiguous or takes too long; the object is of no more
  // use.
  Status Fits(int32_t token, bool * fits);
  // For every token.
  Status Allowed(std::vector<bool> * allowed);
  // REQUIRES a token that fits.
  Status Accept(int32_t token);

 private:
  class Machine;
  // Where the text stands: a set of stacks, and an unfinished UTF-8 sequence.
  struct State {
    int32_t set = 0;
    uint32_t value = 0;
    int32_t missing = 0;
  };
  explicit Grammar(TokenPieces * pieces);
  State After(State state, unsigned char byte);
  bool Alive(const State & state);
  // Ends a piece of work that the machine began.
  Status Checked();

  TokenPieces * pieces_;
  std::unique_ptr<Machine> machine_;
  State state_;
};

}  // namespace meshnet
