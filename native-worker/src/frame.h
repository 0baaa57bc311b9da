// Frame codec: packets of bytes to checked frames and back. No IO, no clock, nothing kept between calls.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "port.h"
#include "status.h"

namespace meshnet {

// The one tensor of every boundary schema so far.
inline constexpr char kBoundaryTensor[] = "residual";

// A frame and the bytes that stood for it in its packet. `raw` points into the packet.
struct ParsedFrame {
  Frame frame;
  std::string_view raw;
};

// Structure first, on the raw bytes and before protobuf allocates for it: sizes, counts of every repeated field,
// nesting, no groups. Then the rules that need no context. On error `out` is empty. kFrameTooLarge, kLimitExceeded,
// kMalformed, kPositionInvalid, kTurnInvalid, kValueInvalid.
Status ParsePacket(std::string_view bytes, std::vector<ParsedFrame> * out);

// What one direction of an open stream may carry.
struct FrameRules {
  LaneKey lane;              // of the receiver; every frame names it
  bool turns = false;        // Turn, TurnTokens, Cancel: the direction from the gateway to the tail
  bool activations = false;  // PREFILL and DECODE runs
  bool loop = false;         // LOOP runs
  uint32_t width = 0;        // of the one boundary tensor, elements per position
  meshnet::seam::v1::DType prefill_dtype = meshnet::seam::v1::DTYPE_F32;
  meshnet::seam::v1::DType decode_dtype = meshnet::seam::v1::DTYPE_F32;
  uint32_t max_positions = 0;  // of the session
  uint32_t n_vocab = 0;
};

// kLaneNotOpen, kRoleInvalid (a kind that this direction does not carry), kMalformed, kShapeInvalid, kDtypeInvalid,
// kSizeMismatch, kPositionInvalid, kTokenInvalid, kLimitExceeded.
Status CheckFrame(const Frame & frame, const FrameRules & rules);

enum class FrameKind { kAck, kRun, kOpen, kOpened, kTurn, kTurnTokens, kCredit, kCancel, kError, kClose };

// kMalformed when the frame is of two kinds.
Status KindOf(const Frame & frame, FrameKind * out);
// Runs, turns, cancels and closes count in seq; the rest carries seq 0.
bool IsSequenced(FrameKind kind);

// Bytes of `elements` in rows of the last dimension. False: unknown dtype, a row that does not fill whole blocks, or
// more than 64 bits.
bool TensorBytes(meshnet::seam::v1::DType dtype, uint64_t rows, uint64_t row_elements, uint64_t * out);
// Tensor payload of the frame.
uint64_t PayloadBytes(const Frame & frame);

// Packet { frame } in wire form; *raw_offset is where the frame's own bytes begin. Empty: larger than kMaxPacketBytes.
std::string EncodePacket(const Frame & frame, size_t * raw_offset);

}  // namespace meshnet
