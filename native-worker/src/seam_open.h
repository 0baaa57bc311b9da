// Opening a seam: what each end says of itself, and what it must refuse to hear.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "frame.h"
#include "port.h"
#include "seam.pb.h"
#include "status.h"
#include "worker.pb.h"

namespace meshnet {

// One end of one seam, fixed at admission.
struct SeamTerms {
  LaneKey lane;  // ours
  meshnet::worker::v1::SeamRole end = meshnet::worker::v1::SEAM_ROLE_UNSPECIFIED;
  uint32_t n_stages = 1;
  std::string model_digest;
  uint32_t layer_first = 0, layer_last = 0, n_layer = 0;
  uint32_t n_embd = 0, n_vocab = 0;
  uint32_t max_chunk_tokens = 0;
  uint32_t positions = 0;      // granted at admission
  uint32_t max_positions = 0;  // that the session can ever be given; the lane knows how many it has
  uint64_t credit_bytes = 0;
  meshnet::seam::v1::DType prefill_dtype = meshnet::seam::v1::DTYPE_F32;
  meshnet::seam::v1::DType decode_dtype = meshnet::seam::v1::DTYPE_F32;

  bool is_head() const { return layer_first == 0; }
  bool is_tail() const { return layer_last == n_layer; }
};

// kRoleInvalid: a stage in this place has no such end.
Status CheckTerms(const SeamTerms & terms);

// The stage that frames sent from this end name.
uint32_t PeerStage(const SeamTerms & terms);
// Where the engine attaches this end.
Port PortOf(const SeamTerms & terms);
// With two stages the tail's seam to the head is its loop, too.
bool CarriesLoop(const SeamTerms & terms);
// What may arrive at this end.
FrameRules IncomingRules(const SeamTerms & terms);

// The listener's end for a dialler's role; UNSPECIFIED for an unknown one.
meshnet::worker::v1::SeamRole EndFor(meshnet::seam::v1::Role dialler);

meshnet::seam::v1::Open MakeOpen(const SeamTerms & terms, uint32_t attempt, uint64_t next_seq, uint64_t credit_bytes);
meshnet::seam::v1::Opened MakeOpened(const SeamTerms & terms, const meshnet::seam::v1::Open & open, uint64_t next_seq,
                                     uint64_t credit_bytes);

// Listener. kVersionUnsupported, kRoleInvalid, kModelMismatch, kRangeMismatch, kSchemaMismatch, kLimitExceeded.
Status CheckOpen(const SeamTerms & terms, const meshnet::seam::v1::Open & open);
// Dialler. The same codes, and kAttemptStale when another attempt is answered.
Status CheckOpened(const SeamTerms & terms, uint32_t attempt, const meshnet::seam::v1::Opened & opened);

}  // namespace meshnet
