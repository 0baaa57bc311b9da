// Sessions that join a ring, take turns, go back, break off and leave at random: what they asked and what they got.
// Threads: one for each seat; a seat has one session at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine_ring.h"
#include "findings.h"

namespace meshnet {

struct PlayParams {
  uint32_t seats = 4;
  uint32_t turns = 250;  // of all seats together; there are markers for 450
  uint32_t seed = 1;
  uint32_t positions = 128;  // of a session; the seats together hold every cell
  uint32_t max_prompt = 24;
  uint32_t max_long = 96;  // of one prompt in eight, several chunks
};

struct PlayedTurn {
  seam::v1::Turn turn;
  std::vector<int32_t> ids;
  std::vector<int32_t> tokens{};
  seam::v1::Finish finish = seam::v1::FINISH_UNSPECIFIED;  // unspecified: the session was ended before
  uint32_t pos = 0;                                        // that the finish named
};

struct PlayedSession {
  int id = 0;
  std::string session;  // of its lane keys
  uint32_t positions = 0;
  std::vector<PlayedTurn> turns{};
};

// Each session has an alphabet of markers: its prompts are made of nothing else, and nothing else can be sampled.
inline constexpr int32_t kMarkers = 8;
int32_t FirstMarker(int id);

// The inputs are decided by the seed and by where cancelled turns ended. REQUIRES a ring with an id for each seat.
std::vector<PlayedSession> Play(Ring * ring, const PlayParams & params, Findings * findings);

// No lane, no cell and no id is taken.
void CheckAllFree(Ring * ring, Findings * findings);
// One session that needs every cell: what the ledger calls free has to be free in the cache too.
PlayedSession FillEveryCell(Ring * ring, Findings * findings);

}  // namespace meshnet
