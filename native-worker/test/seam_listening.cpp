#include "seam_listening.h"

namespace meshnet {

Listening::Listening() {
  EXPECT_TRUE(MakeCertificate(&peer_).ok());
  seam_ = tail_.AddLane(TailTerms(), peer_.sha256);
}

std::unique_ptr<SeamClient> Listening::Connect(const std::string & ticket) const {
  auto client =
      std::make_unique<SeamClient>(tail_.ChannelAs(peer_), SeamClient::Metadata{{"meshnet-ticket-bin", ticket}});
  client->set_lane(TailTerms().lane);
  return client;
}

std::unique_ptr<SeamClient> Listening::Open(uint32_t attempt, uint64_t next_seq) {
  auto client = Connect(tail_.ticket());
  client->SendFrame(UpstreamOpen(attempt, next_seq));
  const auto answer = client->Next();
  EXPECT_TRUE(answer && answer->has_opened()) << (answer ? answer->ShortDebugString() : "the stream ended");
  if (answer) opened_ = answer->opened();
  return client;
}

Code Listening::OpenCode(const std::function<void(Frame &)> & change) const {
  auto client = Connect(tail_.ticket());
  Frame open = UpstreamOpen(1);
  change(open);
  client->SendFrame(open);
  const Code code = client->NextError();
  client->WaitEnd();
  return code;
}

Code Listening::FrameCode(const std::function<void(SeamClient &)> & send) {
  auto client = Open();
  send(*client);
  const Code code = client->NextError();
  EXPECT_EQ(tail_.lane.Next(Kind::kFailed).code, code);
  client->WaitEnd();
  return code;
}

}  // namespace meshnet
