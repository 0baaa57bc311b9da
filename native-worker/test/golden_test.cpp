// The golden files of test/golden: parsed, held against index.json, checked by the frame codec and written again.
#include <gtest/gtest.h>

#include <google/protobuf/message.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "frame.h"
#include "peer.pb.h"

namespace meshnet {
namespace {

namespace pb = meshnet::seam::v1;
using google::protobuf::Message;
using google::protobuf::util::JsonStringToMessage;
using google::protobuf::util::MessageToJsonString;

const std::string kFolder = MESHNET_GOLDEN_DIR "/";

std::string Read(const std::string & path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string Sha256(std::string_view bytes) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size(), reinterpret_cast<uint8_t *>(digest.data()));
  return digest;
}

std::string Hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    constexpr char digits[] = "0123456789abcdef";
    text += digits[static_cast<uint8_t>(byte) >> 4];
    text += digits[static_cast<uint8_t>(byte) & 15];
  }
  return text;
}

// An empty message of that name, or nothing.
std::unique_ptr<Message> NewMessage(const std::string & name) {
  // Naming one of its messages links a file's generated code, and that of the files it imports.
  const auto * pool = meshnet::peer::v1::Manifest::descriptor()->file()->pool();
  const auto * type = pool->FindMessageTypeByName(name);
  if (type == nullptr) return nullptr;
  return std::unique_ptr<Message>(google::protobuf::MessageFactory::generated_factory()->GetPrototype(type)->New());
}

// One entry of index.json.
struct Golden {
  std::string file, message, sha256;
  google::protobuf::Value fields;

  std::string Bytes() const { return Read(kFolder + file); }
};

void PrintTo(const Golden & golden, std::ostream * out) { *out << golden.file; }

std::vector<Golden> Index() {
  google::protobuf::ListValue index;
  if (!JsonStringToMessage(Read(kFolder + "index.json"), &index).ok()) return {};
  std::vector<Golden> all;
  for (const auto & value : index.values()) {
    const auto & entry = value.struct_value().fields();
    all.push_back({entry.at("file").string_value(), entry.at("message").string_value(),
                   entry.at("sha256").string_value(), entry.at("fields")});
  }
  return all;
}

std::vector<Golden> Packets() {
  std::vector<Golden> all = Index();
  std::erase_if(all, [](const Golden & golden) { return golden.message != "meshnet.seam.v1.Packet"; });
  return all;
}

FrameRules RulesFor(const Frame & frame) {
  FrameRules rules;
  rules.lane = {frame.lane().session(), 3, frame.lane().stage()};
  rules.turns = rules.activations = rules.loop = true;
  rules.width = 32;
  if (frame.phase() == pb::PHASE_PREFILL) rules.prefill_dtype = frame.tensors(0).dtype();
  rules.max_positions = 96;
  rules.n_vocab = 49152;
  return rules;
}

// The frame's own bytes in a packet that holds nothing else.
std::string RawFrame(const std::string & file) {
  const std::string packet = Read(kFolder + file);
  std::vector<ParsedFrame> frames;
  return ParsePacket(packet, &frames).ok() ? std::string(frames.at(0).raw) : std::string();
}

class GoldenMessage : public testing::TestWithParam<Golden> {};
class GoldenPacket : public testing::TestWithParam<Golden> {};

TEST_P(GoldenMessage, HasTheFieldsOfTheIndexInTheseVeryBytes) {
  const std::string bytes = GetParam().Bytes();
  EXPECT_EQ(Hex(Sha256(bytes)), GetParam().sha256);
  const auto message = NewMessage(GetParam().message);
  ASSERT_NE(message, nullptr);
  ASSERT_TRUE(message->ParseFromString(bytes));
  EXPECT_EQ(message->SerializeAsString(), bytes);
  std::string json;
  ASSERT_TRUE(MessageToJsonString(GetParam().fields, &json).ok());
  message->Clear();
  const auto read = JsonStringToMessage(json, message.get());
  ASSERT_TRUE(read.ok()) << read.ToString();
  EXPECT_EQ(message->SerializeAsString(), bytes);
}

TEST_P(GoldenPacket, PassesTheChecksOfAStream) {
  const std::string bytes = GetParam().Bytes();
  std::vector<ParsedFrame> frames;
  const Status parsed = ParsePacket(bytes, &frames);
  ASSERT_TRUE(parsed.ok()) << parsed.message();
  ASSERT_EQ(frames.size(), 1U);
  const Frame & frame = frames[0].frame;
  FrameKind kind;
  ASSERT_TRUE(KindOf(frame, &kind).ok());
  EXPECT_EQ(IsSequenced(kind), frame.seq() != 0);
  const Status checked = CheckFrame(frame, RulesFor(frame));
  // A stream that is open already takes no second handshake.
  const bool opens = kind == FrameKind::kOpen || kind == FrameKind::kOpened;
  EXPECT_EQ(checked.code(), opens ? Code::kMalformed : Code::kOk) << checked.message();
  size_t offset = 0;
  EXPECT_EQ(EncodePacket(frame, &offset), bytes);
  EXPECT_EQ(std::string_view(bytes).substr(offset), frames[0].raw);
}

TEST_P(GoldenPacket, IsRefusedWhenItIsCutShort) {
  const std::string bytes = GetParam().Bytes();
  std::vector<ParsedFrame> frames;
  for (size_t n = 1; n < bytes.size(); ++n) {
    EXPECT_FALSE(ParsePacket(std::string_view(bytes).substr(0, n), &frames).ok()) << n << " bytes";
  }
}

TEST(Golden, CloseNamesTheDigestOfTheFramesBeforeIt) {
  Frame frame;
  ASSERT_TRUE(frame.ParseFromString(RawFrame("close.bin")));
  EXPECT_EQ(frame.seq(), 3U);
  EXPECT_EQ(frame.close().n_frames(), 2U);
  EXPECT_EQ(frame.close().digest(), Sha256(RawFrame("turn.bin") + RawFrame("turn-tokens.bin")));
}

TEST(Golden, OpenNamesTheDigestOfTheManifest) {
  Frame frame;
  ASSERT_TRUE(frame.ParseFromString(RawFrame("open.bin")));
  EXPECT_EQ(frame.open().model_digest(), Sha256(Read(kFolder + "manifest.bin")));
}

std::string NameOf(const testing::TestParamInfo<Golden> & info) {
  std::string name = info.param.file;
  std::replace_if(name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenMessage, testing::ValuesIn(Index()), NameOf);
INSTANTIATE_TEST_SUITE_P(Files, GoldenPacket, testing::ValuesIn(Packets()), NameOf);

}  // namespace
}  // namespace meshnet
