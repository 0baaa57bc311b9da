#include "limits_kernels.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#if defined(__x86_64__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace meshnet::limits {
namespace {

std::set<std::string> ReadFlags() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) != 0 && line.rfind("Features", 0) != 0) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    std::set<std::string> flags;
    for (std::string word; words >> word;) flags.insert(word);
    return flags;
  }
  return {};
}

const std::set<std::string> & Flags() {
  static const std::set<std::string> flags = ReadFlags();
  return flags;
}

}  // namespace

bool Has(const std::string & feature) { return Flags().count(feature) != 0; }

std::vector<std::string> Features() {
  std::vector<std::string> found;
  for (const char * name : {"avx2", "fma", "avx_vnni", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16",
                            "avx512_fp16", "amx_int8", "amx_bf16", "asimd", "asimddp", "i8mm", "bf16", "sve"}) {
    if (Has(name)) found.push_back(name);
  }
  return found;
}

#if defined(__x86_64__)
namespace {

// Enough independent sums that the latency of one multiply-add hides behind the others.
constexpr int kSums = 16;
constexpr int kLoops = 1 << 16;

// All lanes of all vectors, read from memory: nothing that was computed may be left out.
template <typename Lane, typename Vector>
double Total(const Vector * vectors, size_t n) {
  double total = 0;
  for (size_t i = 0; i < n * sizeof(Vector) / sizeof(Lane); i++) {
    Lane lane;
    std::memcpy(&lane, reinterpret_cast<const char *>(vectors) + i * sizeof(Lane), sizeof(Lane));
    total += static_cast<double>(lane);
  }
  return total;
}

#define MESHNET_TARGET(features) __attribute__((target(features), noinline))

MESHNET_TARGET("avx512f") double Read512(const std::byte * data, size_t bytes) {
  __m512i sums[8];
  for (auto & sum : sums) sum = _mm512_setzero_si512();
  for (size_t at = 0; at < bytes; at += 512) {
    _mm_prefetch(reinterpret_cast<const char *>(data + at + 4096), _MM_HINT_T0);
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++) sums[i] = _mm512_xor_si512(sums[i], _mm512_load_si512(data + at + 64 * i));
  }
  return Total<uint64_t>(sums, 8);
}

MESHNET_TARGET("avx2") double Read256(const std::byte * data, size_t bytes) {
  __m256i sums[8];
  for (auto & sum : sums) sum = _mm256_setzero_si256();
  for (size_t at = 0; at < bytes; at += 256) {
    const auto * line = reinterpret_cast<const __m256i *>(data + at);
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++) sums[i] = _mm256_xor_si256(sums[i], _mm256_load_si256(line + i));
  }
  return Total<uint64_t>(sums, 8);
}

MESHNET_TARGET("avx512f") void F32By512(double * sink) {
  __m512 sums[kSums];
  for (int i = 0; i < kSums; i++) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512 scale = _mm512_set1_ps(static_cast<float>(0.999 + *sink * 1e-300)), step = _mm512_set1_ps(1e-3f);
  for (int loop = 0; loop < kLoops; loop++) {
#pragma GCC unroll 16
    for (int i = 0; i < kSums; i++) sums[i] = _mm512_fmadd_ps(sums[i], scale, step);
  }
  *sink += Total<float>(sums, kSums);
}

MESHNET_TARGET("avx2,fma") void F32By256(double * sink) {
  __m256 sums[12];
  for (int i = 0; i < 12; i++) sums[i] = _mm256_set1_ps(static_cast<float>(i));
  const __m256 scale = _mm256_set1_ps(static_cast<float>(0.999 + *sink * 1e-300)), step = _mm256_set1_ps(1e-3f);
  for (int loop = 0; loop < kLoops; loop++) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; i++) sums[i] = _mm256_fmadd_ps(sums[i], scale, step);
  }
  *sink += Total<float>(sums, 12);
}

MESHNET_TARGET("avx512f,avx512vnni") void Int8By512(double * sink) {
  __m512i sums[kSums];
  for (int i = 0; i < kSums; i++) sums[i] = _mm512_set1_epi32(i);
  const __m512i a = _mm512_set1_epi8(static_cast<char>(3 + (*sink < 0))), b = _mm512_set1_epi8(-1);
  for (int loop = 0; loop < kLoops; loop++) {
#pragma GCC unroll 16
    for (int i = 0; i < kSums; i++) sums[i] = _mm512_dpbusd_epi32(sums[i], a, b);
  }
  *sink += Total<int32_t>(sums, kSums);
}

MESHNET_TARGET("avx2") void Int8By256(double * sink) {
  __m256i sums[8];
  for (int i = 0; i < 8; i++) sums[i] = _mm256_set1_epi32(i);
  const __m256i ones = _mm256_set1_epi16(1), b = _mm256_set1_epi8(-1);
  __m256i a = _mm256_set1_epi8(static_cast<char>(3 + (*sink < 0)));
  for (int loop = 0; loop < kLoops; loop++) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
      sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
    }
    // Another left side in each loop, or the compiler takes the product out of it.
    a = _mm256_xor_si256(a, _mm256_set1_epi8(1));
  }
  *sink += Total<int32_t>(sums, 8);
}

MESHNET_TARGET("avx512f,avx512bf16") void Bf16By512(double * sink) {
  __m512 sums[kSums];
  for (int i = 0; i < kSums; i++) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512 values = _mm512_set1_ps(static_cast<float>(1e-3 + *sink * 1e-300));
  const __m512bh a = _mm512_cvtne2ps_pbh(values, values), b = _mm512_cvtne2ps_pbh(values, values);
  for (int loop = 0; loop < kLoops; loop++) {
#pragma GCC unroll 16
    for (int i = 0; i < kSums; i++) sums[i] = _mm512_dpbf16_ps(sums[i], a, b);
  }
  *sink += Total<float>(sums, kSums);
}

// Four sums of 16 by 16, two left and two right tiles of 16 rows of 64 bytes.
constexpr int kTileLoops = 1 << 14;
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

MESHNET_TARGET("amx-tile") void TilesOn() {
  const TileConfig config;
  _tile_loadconfig(&config);
}

MESHNET_TARGET("amx-tile") void TilesOff() { _tile_release(); }

MESHNET_TARGET("amx-tile,amx-int8") void Int8ByTiles(double * sink) {
  alignas(64) int8_t values[16 * 64];
  for (int i = 0; i < 16 * 64; i++) values[i] = static_cast<int8_t>(i + (*sink < 0));
  alignas(64) int32_t out[16 * 16];
  _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3);
  _tile_loadd(4, values, 64); _tile_loadd(5, values, 64); _tile_loadd(6, values, 64); _tile_loadd(7, values, 64);
  for (int loop = 0; loop < kTileLoops; loop++) {
    _tile_dpbssd(0, 4, 6); _tile_dpbssd(1, 4, 7); _tile_dpbssd(2, 5, 6); _tile_dpbssd(3, 5, 7);
  }
  _tile_stored(0, out, 64); *sink += out[0];
  _tile_stored(3, out, 64); *sink += out[255];
}

MESHNET_TARGET("amx-tile,amx-bf16") void Bf16ByTiles(double * sink) {
  alignas(64) uint16_t values[16 * 32];
  std::fill_n(values, 16 * 32, static_cast<uint16_t>(0x3a83 + (*sink < 0)));  // about 0.001
  alignas(64) float out[16 * 16];
  _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3);
  _tile_loadd(4, values, 64); _tile_loadd(5, values, 64); _tile_loadd(6, values, 64); _tile_loadd(7, values, 64);
  for (int loop = 0; loop < kTileLoops; loop++) {
    _tile_dpbf16ps(0, 4, 6); _tile_dpbf16ps(1, 4, 7); _tile_dpbf16ps(2, 5, 6); _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, out, 64); *sink += static_cast<double>(out[0]);
  _tile_stored(3, out, 64); *sink += static_cast<double>(out[255]);
}

#undef MESHNET_TARGET

bool tiles = false;

// Linux gives a process the large tile state only when it asks for it.
bool AskForTiles() {
  constexpr long kArchReqXcompPerm = 0x1023, kTileData = 18;
  return Has("amx_tile") && syscall(SYS_arch_prctl, kArchReqXcompPerm, kTileData) == 0;
}

}  // namespace

double Read(const std::byte * data, size_t bytes) {
  return Has("avx512f") ? Read512(data, bytes) : Read256(data, bytes);
}

std::vector<Kernel> Kernels() {
  std::vector<Kernel> kernels;
  const uint64_t loops = kLoops;
  if (Has("avx512f")) kernels.push_back({"f32", loops * kSums * 16 * 2, F32By512});
  else if (Has("avx2") && Has("fma")) kernels.push_back({"f32", loops * 12 * 8 * 2, F32By256});
  if (Has("avx512_vnni")) kernels.push_back({"int8", loops * kSums * 64 * 2, Int8By512});
  else if (Has("avx2")) kernels.push_back({"int8", loops * 8 * 32 * 2, Int8By256});
  if (Has("avx512_bf16")) kernels.push_back({"bf16", loops * kSums * 32 * 2, Bf16By512});
  tiles = AskForTiles();
  const uint64_t tile_loops = kTileLoops;
  if (tiles && Has("amx_int8")) kernels.push_back({"amx_int8", tile_loops * 4 * 16 * 16 * 64 * 2, Int8ByTiles});
  if (tiles && Has("amx_bf16")) kernels.push_back({"amx_bf16", tile_loops * 4 * 16 * 16 * 32 * 2, Bf16ByTiles});
  return kernels;
}

void EnterThread() {
  if (tiles) TilesOn();
}

void LeaveThread() {
  if (tiles) TilesOff();
}

#else
namespace {

using Lanes = float __attribute__((vector_size(16)));
constexpr int kSums = 16;
constexpr int kLoops = 1 << 16;

void F32(double * sink) {
  Lanes sums[kSums] = {};
  const float scale = static_cast<float>(0.999 + *sink * 1e-300);
  const Lanes scales = {scale, scale, scale, scale}, step = {1e-3f, 1e-3f, 1e-3f, 1e-3f};
  for (int loop = 0; loop < kLoops; loop++) {
#pragma GCC unroll 16
    for (int i = 0; i < kSums; i++) sums[i] = sums[i] * scales + step;
  }
  for (const Lanes & sum : sums) *sink += static_cast<double>(sum[0]);
}

}  // namespace

double Read(const std::byte * data, size_t bytes) {
  using Words = uint64_t __attribute__((vector_size(16)));
  const auto * words = reinterpret_cast<const Words *>(data);
  Words sums[8] = {};
  for (size_t at = 0; at < bytes / sizeof(Words); at += 8) {
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++) sums[i] ^= words[at + i];
  }
  double sum = 0;
  for (const Words & part : sums) sum += static_cast<double>(part[0] ^ part[1]);
  return sum;
}

std::vector<Kernel> Kernels() { return {{"f32", uint64_t{kLoops} * kSums * 4 * 2, F32}}; }
void EnterThread() {}
void LeaveThread() {}
#endif

}  // namespace meshnet::limits
