// Boundary bundles: the residual stream between f32 rows and the tensors of frames.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "port.h"
#include "status.h"

namespace meshnet {

// The one tensor of today's boundary schema.
inline constexpr const char * kResidual = "residual";

// Bytes of one position of `width` elements; 0 when the dtype is unknown or the width does not fill whole blocks.
uint64_t RowBytes(seam::v1::DType dtype, uint32_t width);

// The frame's rows as f32, [n_tokens, width] row-major, appended to `out`. `out` is unchanged after an error.
// kShapeInvalid, kDtypeInvalid, kSizeMismatch, kValueInvalid.
Status ReadBundle(const Frame & frame, seam::v1::DType dtype, uint32_t width, std::vector<float> * out);

// Adds the tensor of `rows` to the frame. REQUIRES RowBytes(dtype, width) != 0 and rows.size() a multiple of width.
void WriteBundle(std::span<const float> rows, seam::v1::DType dtype, uint32_t width, Frame * frame);

bool AllFinite(std::span<const float> values);

}  // namespace meshnet
