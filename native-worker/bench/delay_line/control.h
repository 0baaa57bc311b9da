// Control: what the owner may ask while the line runs: one JSON object a line, one line back.
// Threads: not safe; owned by the loop.
#pragma once

#include <functional>
#include <string>

#include "switch.h"

namespace meshnet::delay {

constexpr size_t kMaxControlLine = 4096;

// Cuts a stream into lines. A line that is too long is given cut short, and so is no JSON; its rest is skipped.
class LineReader {
 public:
  // One read. False: the other side has closed.
  bool Read(int fd, const std::function<void(const std::string &)> & take);

 private:
  std::string line_;
  bool skipping_ = false;
};

// {"do":"set","delay_us":N,"rate_bps":N,"queue_bytes":N,"from":I,"to":J}: the named ones of the three change, for the
//   links from I, to J, or all; {"ok":true}
// {"do":"counters"}: as CountersText; {"do":"reset"}: all counters to zero; {"ok":true}
// Anything else: {"error":"..."}, and nothing has changed.
std::string Answer(const std::string & line, Switch * links);

std::string CountersText(Switch * links);

// Empty, or which one is out of its range.
std::string Refusal(const LinkSettings & settings);

}  // namespace meshnet::delay
