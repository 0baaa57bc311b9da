// One request to a whole model and what it took: prompts of all sessions together, then so many tokens for each.
// Threads: the thread that loaded the model.
#pragma once

#include <string>

#include "whole_model.h"

namespace meshnet::whole {

constexpr size_t kMaxLineBytes = size_t{64} << 20;
constexpr uint32_t kMaxSessions = 256;  // sequence ids of llama.cpp
constexpr uint32_t kMaxOutput = 1 << 16;
constexpr int64_t kMaxPauseMs = 10'000;

// Answers one line, {"prompts", "output", "sampling", "pause_ms"}, with one line: {"prefill_ms", "decode_wall_ms",
// "step_ms", "tokens", "peak_mib", "cpu_s", "compute_ms", "sample_ms"}, the last two sums over the decode steps; or
// {"error"} for a line that cannot be done, after which the model is as before. With pause_ms the process sleeps before
// each decode step, as a stage of a mesh does while it waits for the others; no time of the answer counts that.
// Never throws.
std::string Answer(Model & model, const Options & options, const std::string & line);

}  // namespace meshnet::whole
