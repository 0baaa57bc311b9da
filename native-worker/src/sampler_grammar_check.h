// CheckGrammar: refuses a GBNF text before anything expensive when it would cost too much.
// Threads: a pure function; the caller holds an AbortGuard.
#pragma once

#include <string>

#include "status.h"

struct llama_vocab;

namespace meshnet {

// kGrammarInvalid: it cannot be parsed, has no rule named root, is nested too deeply, repeats too much, recurses on the
// left, can begin in too many ways, or names tokens in place of text.
Status CheckGrammar(const std::string & text, const llama_vocab * vocab);

}  // namespace meshnet
