#include "frame_scan.h"

#include <array>
#include <span>
#include <string>

#include "bounds.h"

namespace meshnet {
namespace {

struct Message;

// How often a field may stand in its message, and what a length-delimited one holds.
struct Field {
  uint32_t number;
  size_t max_count;
  const Message * message = nullptr;
};

struct Message {
  std::span<const Field> fields;
};

constexpr Message kLeaf{};
constexpr size_t kIds = kMaxTurnTokens;  // an unpacked list has one tag per id

constexpr std::array kTensorFields{Field{3, kMaxRank}};
constexpr Message kTensor{kTensorFields};
constexpr std::array kLogprobsFields{Field{2, kMaxLogprobs}, Field{3, kMaxLogprobs}};
constexpr Message kLogprobs{kLogprobsFields};
constexpr std::array kOpenFields{Field{8, kMaxTensors, &kLeaf}, Field{9, 1, &kLeaf}};
constexpr Message kOpen{kOpenFields};
constexpr std::array kOpenedFields{Field{5, 1, &kLeaf}};
constexpr Message kOpened{kOpenedFields};
constexpr std::array kSamplingFields{Field{8, kMaxLogitBias, &kLeaf}};
constexpr Message kSampling{kSamplingFields};
constexpr std::array kTurnFields{Field{5, 1, &kSampling}};
constexpr Message kTurn{kTurnFields};
constexpr std::array kTurnTokensFields{Field{2, kIds}};
constexpr Message kTurnTokens{kTurnTokensFields};
constexpr std::array kErrorFields{Field{4, kMaxDetails, &kLeaf}};
constexpr Message kError{kErrorFields};
constexpr std::array kFrameFields{
    Field{1, 1, &kLeaf},
    Field{9, kMaxFrameTokens},
    Field{10, kMaxTensors, &kTensor},
    Field{13, kMaxStageTimes, &kLeaf},
    Field{14, kMaxFrameTokens, &kLogprobs},
    Field{16, 1, &kOpen},
    Field{17, 1, &kOpened},
    Field{18, 1, &kTurn},
    Field{19, 1, &kTurnTokens},
    Field{20, 1, &kLeaf},
    Field{21, 1, &kLeaf},
    Field{22, 1, &kError},
    Field{23, 1, &kLeaf},
};
constexpr Message kFrame{kFrameFields};
constexpr size_t kMaxKnownFields = kFrameFields.size();

Status Malformed(const char * what) { return {Code::kMalformed, what}; }

// Reads from the front of `in`. False: it ends too early, or is longer than 10 bytes.
bool TakeVarint(std::string_view * in, uint64_t * out) {
  uint64_t value = 0;
  for (size_t i = 0; i < 10 && i < in->size(); ++i) {
    const auto byte = static_cast<uint8_t>((*in)[i]);
    value |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
    if (byte < 0x80) {
      in->remove_prefix(i + 1);
      *out = value;
      return i < 9 || byte <= 1;
    }
  }
  return false;
}

struct Tag {
  uint32_t number = 0;
  uint32_t wire_type = 0;
  std::string_view content;  // of a length-delimited field
};

Status TakeField(std::string_view * in, Tag * out) {
  uint64_t tag = 0;
  if (!TakeVarint(in, &tag) || tag > UINT32_MAX || tag >> 3 == 0) return Malformed("a field tag is not valid");
  out->number = static_cast<uint32_t>(tag >> 3);
  out->wire_type = tag & 7;
  uint64_t value = 0;
  switch (out->wire_type) {
    case 0:
      if (!TakeVarint(in, &value)) return Malformed("a varint is not valid");
      return {};
    case 1:
    case 5: {
      const size_t width = out->wire_type == 1 ? 8 : 4;
      if (in->size() < width) return Malformed("a fixed field is cut short");
      in->remove_prefix(width);
      return {};
    }
    case 2:
      if (!TakeVarint(in, &value) || value > in->size()) return Malformed("a length goes past the end");
      out->content = in->substr(0, value);
      in->remove_prefix(value);
      return {};
    default:
      return Malformed("groups are not part of this protocol");
  }
}

// Recursion ends with the table: unknown fields are skipped whole, never entered.
Status ScanMessage(std::string_view in, const Message & message, size_t * tags_left) {
  std::array<size_t, kMaxKnownFields> counts{};
  while (!in.empty()) {
    if ((*tags_left)-- == 0) return {Code::kLimitExceeded, "a frame holds too many fields"};
    Tag tag;
    if (Status s = TakeField(&in, &tag); !s.ok()) return s;
    for (size_t i = 0; i < message.fields.size(); ++i) {
      const Field & field = message.fields[i];
      if (field.number != tag.number) continue;
      if (++counts[i] > field.max_count) {
        return {
            field.max_count == 1 ? Code::kMalformed : Code::kLimitExceeded,
            "field " + std::to_string(tag.number) + " stands more than " + std::to_string(field.max_count) + " times"};
      }
      if (field.message == nullptr) continue;
      if (tag.wire_type != 2) return Malformed("a message field has another wire type");
      if (Status s = ScanMessage(tag.content, *field.message, tags_left); !s.ok()) return s;
    }
  }
  return {};
}

}  // namespace

Status SplitPacket(std::string_view packet, std::vector<std::string_view> * frames) {
  frames->clear();
  size_t n_tags = 0;
  while (!packet.empty()) {
    if (++n_tags > 2 * kMaxFramesPerPacket) return {Code::kLimitExceeded, "a packet holds too many fields"};
    Tag tag;
    if (Status s = TakeField(&packet, &tag); !s.ok()) return s;
    if (tag.number != 1) continue;
    if (tag.wire_type != 2) return Malformed("a frame has another wire type");
    if (frames->size() == kMaxFramesPerPacket) return {Code::kLimitExceeded, "a packet holds too many frames"};
    frames->push_back(tag.content);
  }
  if (frames->empty()) return Malformed("a packet holds no frame");
  return {};
}

Status ScanFrame(std::string_view frame) {
  size_t tags_left = kMaxFieldsPerFrame;
  return ScanMessage(frame, kFrame, &tags_left);
}

}  // namespace meshnet
