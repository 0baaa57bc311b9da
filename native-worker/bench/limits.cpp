// What this machine can do at most: memory bandwidth and multiplications in each format; and a probe of fixed work that
// tells whether something else is running.
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "limits_kernels.h"

namespace {

using meshnet::limits::Kernel;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr const char * kUsage = R"(usage: meshnet-bench-limits --probe
       meshnet-bench-limits --measure [--threads N] [--seconds S] [--most MIB]

  --probe      for each line on stdin does the same work of about a second on one thread (reading 256 MiB again and
               again, multiplying) and prints {"probe_ms"}
  --measure    prints one line: {"read_gb_s", "read": [{"mib", "gb_s"}...], "copy_gb_s", "f32_gflops", "int8_gops",
               "bf16_gflops", "amx_int8_gops", "amx_bf16_gflops", "threads", "features"}; what the processor lacks is
               left out. "read" is by the memory that all threads walk over together, because small sets stay in caches;
               read_gb_s is the one of the largest. A multiply-add counts as two.
  --threads N  threads, pinned to the first N cores that this process may use (default 1)
  --seconds S  of each measurement (default 0.9); the best third counts
  --most MIB   the largest set that is read (default 2048, and never more than half of the free memory)
)";

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kProbeBytes = 256 * kMiB;
// On a server of 2023 each half takes about half a second.
constexpr int kProbeReads = 24;
constexpr uint64_t kProbeOps = uint64_t{60} * 1000 * 1000 * 1000;
constexpr size_t kSetsMiB[] = {16, 64, 128, 256, 512, 1024, 2048};
constexpr int kMaxThreads = 512;
constexpr int kWindows = 3;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Memory that is there: written once, in large pages where the kernel gives them.
class Buffer {
 public:
  explicit Buffer(size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) throw std::runtime_error("no memory for " + std::to_string(bytes / kMiB) + " MiB");
    madvise(data_, bytes, MADV_HUGEPAGE);
    std::memset(data_, 1, bytes);
  }
  ~Buffer() { munmap(data_, bytes_); }
  Buffer(const Buffer &) = delete;
  Buffer & operator=(const Buffer &) = delete;
  std::byte * data() const { return static_cast<std::byte *>(data_); }

 private:
  void * data_;
  size_t bytes_;
};

// Computed values end here, so that no compiler may leave the computing out.
std::atomic<double> consumed{0};

void Consume(double value) { consumed.store(consumed.load() + value); }

std::vector<int> AllowedCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) throw std::runtime_error("cannot read the cores of this process");
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; core++) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

void PinTo(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  if (sched_setaffinity(0, sizeof(set), &set) != 0) {
    throw std::runtime_error("cannot pin to core " + std::to_string(core));
  }
}

using Body = std::function<double()>;  // one piece of work; gives how much was done

// Work per second of all threads together: each repeats its body until the window's time is over. The best window
// counts, because a limit is what the machine can do while nobody disturbs it.
double Rate(const std::vector<int> & cores, double seconds, const std::function<Body(size_t)> & prepare) {
  std::barrier start(static_cast<std::ptrdiff_t>(cores.size()));
  std::vector<std::array<double, kWindows>> rates(cores.size());
  std::vector<std::string> failures(cores.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < cores.size(); i++) {
    threads.emplace_back([&, i] {
      Body body;
      try {
        PinTo(cores[i]);
        body = prepare(i);
        meshnet::limits::EnterThread();
        body();
      } catch (const std::exception & e) {
        failures[i] = e.what();
      }
      for (double & rate : rates[i]) {
        start.arrive_and_wait();
        if (!failures[i].empty()) continue;
        double done = 0;
        const auto begin = Clock::now();
        do done += body();
        while (SecondsSince(begin) < seconds / kWindows);
        rate = done / SecondsSince(begin);
      }
      meshnet::limits::LeaveThread();
    });
  }
  for (auto & thread : threads) thread.join();
  for (const std::string & failure : failures) {
    if (!failure.empty()) throw std::runtime_error(failure);
  }
  double best = 0;
  for (int window = 0; window < kWindows; window++) {
    double sum = 0;
    for (const auto & of_thread : rates) sum += of_thread[window];
    best = std::max(best, sum);
  }
  return best;
}

// Bytes read per second, each thread over its own share of the set.
double ReadRate(const std::vector<int> & cores, double seconds, size_t set_bytes) {
  const size_t share = set_bytes / cores.size() / 4096 * 4096;
  std::vector<std::unique_ptr<Buffer>> buffers(cores.size());
  return Rate(cores, seconds, [&](size_t i) -> Body {
    buffers[i] = std::make_unique<Buffer>(share);
    return [data = buffers[i]->data(), share] {
      Consume(meshnet::limits::Read(data, share));
      return static_cast<double>(share);
    };
  });
}

double CopyRate(const std::vector<int> & cores, double seconds, size_t set_bytes) {
  const size_t share = std::max(set_bytes, kSetsMiB[0] * kMiB) / cores.size() / 4096 * 4096;
  std::vector<std::unique_ptr<Buffer>> from(cores.size()), to(cores.size());
  return Rate(cores, seconds, [&](size_t i) -> Body {
    from[i] = std::make_unique<Buffer>(share);
    to[i] = std::make_unique<Buffer>(share);
    return [source = from[i]->data(), target = to[i]->data(), share] {
      std::memcpy(target, source, share);
      Consume(static_cast<double>(target[share - 1]));
      return 2.0 * static_cast<double>(share);
    };
  });
}

double OpsRate(const std::vector<int> & cores, double seconds, const Kernel & kernel) {
  return Rate(cores, seconds, [&](size_t) -> Body {
    return [&kernel] {
      double sink = 0;
      kernel.run(&sink);
      Consume(sink);
      return static_cast<double>(kernel.ops);
    };
  });
}

size_t FreeMiB() {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;) {
    size_t kib = 0;
    if (word == "MemAvailable:" && file >> kib) return kib / 1024;
  }
  throw std::runtime_error("the kernel does not tell how much memory is free");
}

void Measure(int n_threads, double seconds, size_t most_mib) {
  const std::vector<Kernel> kernels = meshnet::limits::Kernels();
  std::vector<int> cores = AllowedCores();
  if (n_threads < 1 || n_threads > static_cast<int>(cores.size())) {
    throw std::runtime_error("--threads must be 1 to " + std::to_string(cores.size()) + ", the cores of this process");
  }
  cores.resize(static_cast<size_t>(n_threads));
  json out = {{"threads", n_threads}, {"features", meshnet::limits::Features()}, {"read", json::array()}};
  most_mib = std::min(most_mib, FreeMiB() / 2);
  for (const size_t mib : kSetsMiB) {
    if (mib > most_mib && mib > kSetsMiB[0]) break;
    const double rate = ReadRate(cores, seconds, mib * kMiB) / 1e9;
    out["read"].push_back({{"mib", mib}, {"gb_s", rate}});
    out["read_gb_s"] = rate;
  }
  out["copy_gb_s"] = CopyRate(cores, seconds, std::min(most_mib / 2, size_t{512}) * kMiB) / 1e9;
  for (const Kernel & kernel : kernels) {
    const bool integer = kernel.name.find("int8") != std::string::npos;
    out[kernel.name + (integer ? "_gops" : "_gflops")] = OpsRate(cores, seconds, kernel) / 1e9;
  }
  std::printf("%s\n", out.dump().c_str());
}

void Probe() {
  const Buffer buffer(kProbeBytes);
  const std::vector<Kernel> kernels = meshnet::limits::Kernels();
  const Kernel & multiply = kernels.at(0);
  for (std::string line; std::getline(std::cin, line);) {
    const auto start = Clock::now();
    for (int i = 0; i < kProbeReads; i++) Consume(meshnet::limits::Read(buffer.data(), kProbeBytes));
    double sink = 0;
    for (uint64_t ops = 0; ops < kProbeOps; ops += multiply.ops) multiply.run(&sink);
    Consume(sink);
    std::printf("%s\n", json{{"probe_ms", SecondsSince(start) * 1e3}}.dump().c_str());
    std::fflush(stdout);
  }
}

void Run(int argc, char ** argv) {
  std::string mode;
  int threads = 1;
  double seconds = 0.9;
  size_t most_mib = 2048;
  for (int i = 1; i < argc; i++) {
    const std::string name = argv[i];
    const auto value = [&] {
      if (i + 1 >= argc) throw std::runtime_error(name + " needs a value");
      return std::string(argv[++i]);
    };
    if (name == "--help") mode = name;
    else if (name == "--probe" || name == "--measure") mode = name;
    else if (name == "--threads") threads = std::stoi(value());
    else if (name == "--seconds") seconds = std::stod(value());
    else if (name == "--most") most_mib = std::stoul(value());
    else throw std::runtime_error("unknown option " + name);
  }
  if (threads > kMaxThreads || !(seconds > 0 && seconds <= 60)) {
    throw std::runtime_error("--threads is at most 512, --seconds at most 60");
  }
  if (mode == "--help") std::fputs(kUsage, stdout);
  else if (mode == "--probe") Probe();
  else if (mode == "--measure") Measure(threads, seconds, most_mib);
  else throw std::runtime_error("one of --probe and --measure is needed");
}

}  // namespace

int main(int argc, char ** argv) {
  try {
    Run(argc, argv);
    return 0;
  } catch (const std::exception & e) {
    std::fprintf(stderr, "meshnet-bench-limits: %s\n", e.what());
    return 1;
  }
}
