// The kernel of patch 0010 as processors without VNNI run it, against sums one by one: the parity suite compares only what
// this very processor runs.
#include <gtest/gtest.h>
#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

// What repack.cpp has before it includes the kernel.
#define GGML_RESTRICT __restrict
#define QK8_0 32
#define GGML_CPU_FP16_TO_FP32(half) _cvtsh_ss(half)
namespace {
struct block_q4_0x8 {
  uint16_t d[8];
  uint8_t qs[128];
};
struct block_q8_0 {
  uint16_t d;
  int8_t qs[32];
};
__m256i mul_sum_us8_pairs_acc_int32x8(__m256i acc, __m256i weights, __m256i values) {
  const __m256i pairs = _mm256_maddubs_epi16(weights, values);
  return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_set1_epi16(1), pairs));
}
#include "arch/x86/repack-rows.h"

struct Product {
  int n_blocks;   // of a row
  int n_columns;  // a multiple of eight
  std::vector<block_q4_0x8> weights;
  std::vector<block_q8_0> rows;

  Product(int blocks, int columns, int n_rows) : n_blocks(blocks), n_columns(columns) {
    std::mt19937 random(1);
    const auto half = [&] { return _cvtss_sh(static_cast<float>(random() % 2000) / 20'000 - 0.05F, 0); };
    weights.resize(static_cast<size_t>(n_blocks) * n_columns / 8);
    for (auto & block : weights) {
      for (auto & d : block.d) d = half();
      for (auto & q : block.qs) q = static_cast<uint8_t>(random());
    }
    rows.resize(static_cast<size_t>(n_blocks) * n_rows);
    for (auto & block : rows) {
      block.d = half();
      for (auto & q : block.qs) q = static_cast<int8_t>(random() % 255 - 127);
    }
    for (auto & q : rows[0].qs) q = 127;  // the largest sums
  }

  // One element, block by block as upstream sums it up.
  float At(int row, int column) const {
    float sum = 0;
    for (int b = 0; b < n_blocks; b++) {
      const block_q4_0x8 & w = weights[static_cast<size_t>(column / 8) * n_blocks + b];
      const block_q8_0 & a = rows[static_cast<size_t>(row) * n_blocks + b];
      int32_t dot = 0;
      for (int i = 0; i < 16; i++) {
        const uint8_t both = w.qs[i / 8 * 64 + column % 8 * 8 + i % 8];
        const auto low = static_cast<int8_t>(static_cast<int8_t>(both << 4) >> 4);
        const auto high = static_cast<int8_t>(static_cast<int8_t>(both) >> 4);
        dot += low * a.qs[i] + high * a.qs[16 + i];
      }
      sum = std::fmaf(static_cast<float>(dot), _cvtsh_ss(w.d[column % 8]) * _cvtsh_ss(a.d), sum);
    }
    return sum;
  }
};

template <int kRows>
void Check(int n_blocks, int n_columns) {
  const Product product(n_blocks, n_columns, kRows);
  const size_t stride = n_columns + 3;
  constexpr float kUntouched = 7;
  std::vector<float> out(kRows * stride, kUntouched);
  gemv_q4_0_8x8_q8_0_rows<kRows>(n_blocks * QK8_0, out.data(), stride, product.weights.data(), product.rows.data(),
                                 n_columns);
  for (int row = 0; row < kRows; row++) {
    const float * got = out.data() + row * stride;
    for (int column = 0; column < n_columns; column++) {
      const float expected = product.At(row, column);
      ASSERT_EQ(std::memcmp(&expected, got + column, sizeof(float)), 0)
          << kRows << " rows of " << n_blocks << " blocks, at " << row << ", " << column;
    }
    for (size_t column = n_columns; column < stride; column++) ASSERT_EQ(got[column], kUntouched);
  }
}

TEST(Rows, HaveTheBitsOfSumsOneByOne) {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c")) {
    GTEST_SKIP() << "this processor has no AVX2";
  }
  for (const int n_blocks : {1, 3, 64, ROWS_TILE - 1, ROWS_TILE, ROWS_TILE + 1, 2 * ROWS_TILE + 9}) {
    Check<1>(n_blocks, 40);
    Check<2>(n_blocks, 24);
    Check<3>(n_blocks, 8);
  }
}

}  // namespace
