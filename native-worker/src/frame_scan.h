// Scan: walks protobuf wire bytes and counts, before anything is parsed. A small message can describe a huge object.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "status.h"

namespace meshnet {

// The raw bytes of every Frame in a Packet. kMalformed, kLimitExceeded.
Status SplitPacket(std::string_view packet, std::vector<std::string_view> * frames);

// Holds a frame's bytes against the counts in bounds.h. kMalformed, kLimitExceeded.
Status ScanFrame(std::string_view frame);

}  // namespace meshnet
