// CheckGrammar: what a GBNF text would cost, before llama.cpp expands it on the thread that all lanes share.
// Threads: a pure function; the caller holds an AbortGuard.
#pragma once

#include <string>

#include "status.h"

struct llama_vocab;

namespace meshnet {

// kGrammarInvalid: it cannot be parsed, is nested too deeply, repeats too much, recurses on the left, or can begin in
// too many ways.
Status CheckGrammar(const std::string & grammar, const llama_vocab * vocab);

}  // namespace meshnet
