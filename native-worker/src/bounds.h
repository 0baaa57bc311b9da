// Bounds: everything that a peer can make grow, with its bound and the reason for the number.
// Threads: constants only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace meshnet {

// Wire. The same numbers stand in SPEC.md.
inline constexpr uint32_t kProtocolVersion = 1;
inline constexpr size_t kMaxPacketBytes = 1 << 20;      // libp2p and grpc-js start to refuse at 4 MiB
inline constexpr size_t kMaxPayloadBytes = 256 * 1024;  // tensor bytes of one frame: short head-of-line waits
inline constexpr size_t kMaxFramesPerPacket = 64;       // one lane each; as many lanes as a decode batch can hold
inline constexpr size_t kMaxTensors = 8;
inline constexpr size_t kMaxRank = 4;
inline constexpr size_t kMaxTensorNameBytes = 32;
inline constexpr uint32_t kMaxFrameTokens = 4096;  // positions of one activation or loop frame
inline constexpr size_t kMaxTurnTokens = 16384;    // ids of one TurnTokens piece
inline constexpr size_t kMaxGrammarBytes = 64 * 1024;
inline constexpr int kMaxLogprobs = 20;  // what the OpenAI API allows
inline constexpr size_t kMaxLogitBias = 1024;
inline constexpr size_t kMaxStageTimes = 16;  // one per stage
inline constexpr size_t kMaxDetails = 8;
inline constexpr size_t kMaxDetailKeyBytes = 64;
inline constexpr size_t kMaxDetailValueBytes = 256;
inline constexpr size_t kMaxErrorMessageBytes = 512;
inline constexpr size_t kMaxFieldsPerFrame = 64 * 1024;  // tags of one frame; protobuf objects cost ~50 bytes each
inline constexpr size_t kSessionBytes = 16;
inline constexpr size_t kDigestBytes = 32;
inline constexpr size_t kTicketBytes = 32;
inline constexpr size_t kTokenBytes = 32;
inline constexpr size_t kMaxPeerIdBytes = 128;
inline constexpr size_t kMaxBridgeIdBytes = 256;
inline constexpr size_t kMaxCertificateBytes = 1024;
inline constexpr uint32_t kMaxStages = 16;
inline constexpr size_t kMaxEndpoints = 4;
inline constexpr size_t kMaxEndpointBytes = 280;  // a DNS name of 253, brackets and a port

// Flow.
inline constexpr size_t kMaxUnackedFrames = 4096;          // kept for resending; a peer that never acks ends here
inline constexpr size_t kMaxUnackedExemptBytes = 8 << 20;  // of frames that need no credit
inline constexpr size_t kMaxQueuedFrames = 4096;           // waiting for the transport
inline constexpr uint32_t kAckEveryFrames = 16;
inline constexpr size_t kAckEveryBytes = 64 * 1024;
inline constexpr uint64_t kMaxCreditBytes = 256 << 20;  // that a peer can make us queue; two chunks of 4096 x 8192 f32
inline constexpr uint32_t kMaxExemptFramesPerSecond = 16384;  // decode and control: ten times what a ring can turn

// Time, in milliseconds.
inline constexpr uint32_t kHandshakeMs = 10000;  // from the start of a stream to its Opened
inline constexpr uint32_t kLingerMs = 3000;      // for the other side's Close, or for an Error to leave
inline constexpr uint32_t kMaxLinkMs = 60000;
inline constexpr uint32_t kMaxHoldMs = 60000;
inline constexpr uint32_t kDefaultHoldMs = 10000;
inline constexpr uint32_t kKeepaliveMs = 10000;
inline constexpr uint32_t kKeepaliveTimeoutMs = 5000;
inline constexpr uint32_t kMinPingMs = 5000;
inline constexpr uint32_t kGrammarBurstMs = 250;  // of a drawing thread, for a grammar: at first and at most
inline constexpr uint32_t kGrammarTokenMs = 20;   // and for each token more: a vocabulary of 128,000 pieces walked once
inline constexpr uint32_t kStopMs = 5000;  // an orderly stop of the process
inline constexpr uint32_t kProbeMs = 60000;
inline constexpr uint32_t kMinReportMs = 50;

// Processes and connections.
inline constexpr int kMaxStreamsPerConnection = 512;  // 256 sequence ids, each with two seams to the same peer
inline constexpr int kStreamWindowBytes = 4 << 20;    // credits bound memory; a smaller window caps long links
inline constexpr size_t kMaxLanes = 1024;
inline constexpr size_t kMaxWatchers = 8;
inline constexpr size_t kMaxWatchEvents = 8192;  // queued for one watcher that does not read
inline constexpr uint32_t kMaxSamplingThreads = 8;  // a lane draws one token at a time; more would wait for logits
inline constexpr uint32_t kMaxProbeTokens = 4096;

}  // namespace meshnet
