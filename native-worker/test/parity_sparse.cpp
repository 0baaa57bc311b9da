#include <gguf.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>

#include "parity_chain.h"

namespace meshnet {
namespace {

struct GgufFree {
  void operator()(gguf_context * ctx) const { gguf_free(ctx); }
};

// The ownership rule of patches/, written a second time so that the two are held against each other.
bool Owned(const std::string & name, int32_t first, int32_t last, int32_t n_layer, bool tied) {
  int32_t layer = -1;
  if (std::sscanf(name.c_str(), "blk.%d.", &layer) == 1) return layer >= first && layer < last;
  if (name == "token_embd.weight") return first == 0 || (tied && last == n_layer);
  if (name.rfind("rope_", 0) == 0) return true;
  return last == n_layer;
}

}  // namespace

Status WriteSparse(const std::string & source, const std::string & target, int32_t first, int32_t last, int32_t n_layer) {
  const std::unique_ptr<gguf_context, GgufFree> ctx(gguf_init_from_file(source.c_str(), {true, nullptr}));
  std::ifstream in(source, std::ios::binary);
  std::ofstream out(target, std::ios::binary | std::ios::trunc);
  if (!ctx || !in || !out) return {Code::kInternal, "cannot copy " + source + " to " + target};

  const auto copy = [&](uint64_t offset, uint64_t size) {
    std::string data(size, '\0');
    in.seekg(static_cast<std::streamoff>(offset));
    in.read(data.data(), static_cast<std::streamsize>(size));
    out.seekp(static_cast<std::streamoff>(offset));
    out.write(data.data(), static_cast<std::streamsize>(size));
  };
  const uint64_t data = gguf_get_data_offset(ctx.get());
  copy(0, data);
  const bool tied = gguf_find_tensor(ctx.get(), "output.weight") < 0;
  for (int64_t i = 0; i < gguf_get_n_tensors(ctx.get()); i++) {
    if (!Owned(gguf_get_tensor_name(ctx.get(), i), first, last, n_layer, tied)) continue;
    copy(data + gguf_get_tensor_offset(ctx.get(), i), gguf_get_tensor_size(ctx.get(), i));
  }
  out.close();
  if (!in || !out) return {Code::kInternal, "cannot write " + target};
  std::filesystem::resize_file(target, std::filesystem::file_size(source));
  return Status::Ok();
}

}  // namespace meshnet
