// Fuzz target: any bytes through the frame codec. Nothing may crash, and whatever is accepted must survive a round
// trip.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "bounds.h"
#include "frame.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
  using namespace meshnet;
  std::vector<ParsedFrame> frames;
  if (!ParsePacket({reinterpret_cast<const char *>(data), size}, &frames).ok()) return 0;
  FrameRules rules;
  rules.turns = rules.activations = rules.loop = true;
  rules.width = 64;
  rules.max_positions = 4096;
  rules.n_vocab = 32000;
  for (const ParsedFrame & parsed : frames) {
    const auto & lane = parsed.frame.lane();
    rules.lane = {lane.session(), lane.epoch(), lane.stage()};
    const bool good = CheckFrame(parsed.frame, rules).ok();
    size_t offset = 0;
    const std::string again = EncodePacket(parsed.frame, &offset);
    if (again.empty()) continue;  // the canonical form may be longer than a packet
    std::vector<ParsedFrame> twice;
    if (!ParsePacket(again, &twice).ok() || twice.size() != 1) std::abort();
    if (CheckFrame(twice[0].frame, rules).ok() != good) std::abort();
  }
  return 0;
}
