// ParseGrammar: a GBNF text to rules, by llama.cpp's parser, refused before anything expensive when it would cost too
// much. Threads: a pure function; the caller holds an AbortGuard.
#pragma once

#include <llama-grammar.h>

#include <string>

#include "status.h"

namespace meshnet {

// kGrammarInvalid: it cannot be parsed, has no rule named root, is nested too deeply, repeats too much, recurses on the
// left, can begin in too many ways, or names tokens in place of text.
Status ParseGrammar(const std::string & text, const llama_vocab * vocab, llama_grammar_rules * rules, size_t * root);

}  // namespace meshnet
