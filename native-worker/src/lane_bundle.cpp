#include "lane_bundle.h"

#include <ggml.h>

#include <cmath>
#include <cstring>

namespace meshnet {
namespace {

using seam::v1::DType;
using seam::v1::DTYPE_F16;
using seam::v1::DTYPE_F32;
using seam::v1::DTYPE_Q8_0;

ggml_type TypeOf(DType dtype) {
  switch (dtype) {
    case DTYPE_F32:
      return GGML_TYPE_F32;
    case DTYPE_F16:
      return GGML_TYPE_F16;
    case DTYPE_Q8_0:
      return GGML_TYPE_Q8_0;
    default:
      return GGML_TYPE_COUNT;
  }
}

}  // namespace

uint64_t RowBytes(DType dtype, uint32_t width) {
  const ggml_type type = TypeOf(dtype);
  if (type == GGML_TYPE_COUNT || width == 0 || width % ggml_blck_size(type) != 0) return 0;
  return ggml_row_size(type, width);
}

bool AllFinite(std::span<const float> values) {
  // x * 0 is NaN exactly when x is not finite, and a sum keeps it: no branch, so the compiler vectorises four at once.
  float sum[4] = {0, 0, 0, 0};
  size_t i = 0;
  for (; i + 4 <= values.size(); i += 4) {
    for (size_t j = 0; j < 4; j++) sum[j] += values[i + j] * 0.0F;
  }
  for (; i < values.size(); i++) sum[0] += values[i] * 0.0F;
  return std::isfinite(sum[0] + sum[1] + sum[2] + sum[3]);
}

Status ReadBundle(const Frame & frame, DType dtype, uint32_t width, std::vector<float> * out) {
  if (frame.tensors_size() != 1 || frame.tensors(0).name() != kResidual) {
    return {Code::kShapeInvalid, "the boundary is one tensor, residual"};
  }
  const auto & tensor = frame.tensors(0);
  if (tensor.dtype() != dtype) return {Code::kDtypeInvalid, "the boundary dtype is not the agreed one"};
  if (tensor.shape_size() != 2 || tensor.shape(0) != frame.n_tokens() || tensor.shape(1) != width) {
    return {Code::kShapeInvalid, "residual must be [n_tokens, " + std::to_string(width) + "]"};
  }
  const uint64_t row_bytes = RowBytes(dtype, width);
  if (row_bytes == 0 || tensor.data().size() != row_bytes * frame.n_tokens()) {
    return {Code::kSizeMismatch, "residual has " + std::to_string(tensor.data().size()) + " bytes"};
  }

  const size_t old = out->size();
  const size_t n = size_t{frame.n_tokens()} * width;
  out->resize(old + n);
  float * to = out->data() + old;
  if (dtype == DTYPE_F32) {
    std::memcpy(to, tensor.data().data(), n * sizeof(float));
  } else {
    ggml_get_type_traits(TypeOf(dtype))->to_float(tensor.data().data(), to, static_cast<int64_t>(n));
  }
  if (!AllFinite({to, n})) {
    out->resize(old);
    return {Code::kValueInvalid, "residual holds a value that is not finite"};
  }
  return {};
}

void WriteBundle(std::span<const float> rows, DType dtype, uint32_t width, Frame * frame) {
  const auto n_rows = static_cast<uint32_t>(rows.size() / width);
  auto * tensor = frame->add_tensors();
  tensor->set_name(kResidual);
  tensor->set_dtype(dtype);
  tensor->add_shape(n_rows);
  tensor->add_shape(width);
  std::string * data = tensor->mutable_data();
  if (dtype == DTYPE_F32) {
    data->assign(reinterpret_cast<const char *>(rows.data()), rows.size_bytes());
    return;
  }
  data->resize(RowBytes(dtype, width) * n_rows);
  ggml_quantize_chunk(TypeOf(dtype), rows.data(), data->data(), 0, n_rows, width, nullptr);
}

}  // namespace meshnet
