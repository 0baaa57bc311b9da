// Runs a fuzz target without libFuzzer: every seed file, then as many random changes of them as asked for.
// usage: fuzz_frame_driver RUNS SEED FILE...
#include <google/protobuf/stubs/logging.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size);

namespace {

constexpr size_t kMaxBytes = 4096;

void Run(const std::string & bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size());
}

// One to eight small changes: bits, bytes, cuts, repeats, pieces of another seed.
std::string Change(std::string bytes, const std::string & other, std::mt19937_64 & random) {
  const auto below = [&](size_t n) { return n == 0 ? 0 : random() % n; };
  for (size_t n = 1 + below(8); n > 0; --n) {
    const size_t at = below(bytes.size() + 1);
    switch (random() % 6) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = static_cast<char>(random());
        break;
      case 2:
        bytes.erase(at, below(8));
        break;
      case 3:
        bytes.insert(at, 1 + below(8), static_cast<char>(random()));
        break;
      case 4:
        bytes.insert(at, bytes.substr(below(bytes.size() + 1), below(64)));
        break;
      default:
        bytes.insert(at, other.substr(below(other.size() + 1), below(64)));
        break;
    }
  }
  if (bytes.size() > kMaxBytes) bytes.resize(kMaxBytes);
  return bytes;
}

}  // namespace

int main(int argc, char ** argv) {
  if (argc < 4) {
    std::fputs("usage: fuzz_frame_driver RUNS SEED FILE...\n", stderr);
    return 2;
  }
  const unsigned long runs = std::strtoul(argv[1], nullptr, 10), seed = std::strtoul(argv[2], nullptr, 10);
  google::protobuf::SetLogHandler(nullptr);
  std::vector<std::string> seeds;
  for (int i = 3; i < argc; ++i) {
    std::ifstream in(argv[i], std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    Run(seeds.back());
  }
  std::mt19937_64 random(seed);
  for (unsigned long i = 0; i < runs; ++i) {
    // Every change can be made again from the seed and the number.
    Run(Change(seeds[random() % seeds.size()], seeds[random() % seeds.size()], random));
  }
  std::printf("%lu runs, seed %lu\n", runs, seed);
  return 0;
}
