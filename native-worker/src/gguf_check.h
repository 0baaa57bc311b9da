// Reads a GGUF header and refuses what llama.cpp would answer with an abort instead of an error.
// Threads: any; no shared state.
#pragma once

#include <cstdint>
#include <string>

#include "status.h"

namespace meshnet {

struct GgufSummary {
  std::string architecture;
  int32_t n_layer = 0;
};

// kModelCorrupt: not a GGUF, cut short, part of a split file, or keys that contradict each other. *out is then
// unchanged. Tensor contents are not read: they may be holes of a sparse file.
Status CheckGguf(const std::string & path, GgufSummary * out);

}  // namespace meshnet
