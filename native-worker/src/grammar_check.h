// CheckGrammar: what a GBNF text would cost, before llama.cpp's recursive parser and its expansions see it.
// Threads: a pure function.
#pragma once

#include <string_view>

#include "status.h"

namespace meshnet {

// kGrammarInvalid: nested too deeply, or repetitions that expand to too many rules. Says nothing about the syntax.
Status CheckGrammar(std::string_view grammar);

}  // namespace meshnet
