// Times a frame there and back between two processes: over real seams, and over raw TCP, by turns in one run.
#include <grpcpp/grpcpp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "seam_route.h"
#include "seam_tcp.h"
#include "../tools/tool_main.h"

namespace {

using namespace meshnet::bench;
using Clock = std::chrono::steady_clock;

constexpr const char * kUsage = R"(usage: meshnet-bench-seam [--rounds N] [--frames N] [--warmup N] [--pin yes|no]

Prints one line {"grpc", "pinned"}, then one a round: {"round", "sizes": [{"bytes", "tcp_us", "seam_us"}]} with p10, p50
and p95 of the round trips of --frames frames of each size over each transport. Each of the two sides has a processor core
of its own, unless --pin no.
)";

constexpr size_t kSizes[] = {2048, 8192, 16384};
constexpr int kBlockFrames = 50;  // as many over one transport, then over the other

struct Options {
  int rounds = 5, frames = 2000, warmup = 200;
  bool pin = true;
};

Options Parse(int argc, char ** argv) {
  Options o;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) throw std::runtime_error(name + " needs a value");
    const std::string value = argv[i + 1];
    if (name == "--rounds") o.rounds = std::stoi(value);
    else if (name == "--frames") o.frames = std::stoi(value);
    else if (name == "--warmup") o.warmup = std::stoi(value);
    else if (name == "--pin") o.pin = value == "yes";
    else throw std::runtime_error("unknown option " + name);
  }
  if (o.rounds < 1 || o.frames < 1) throw std::runtime_error("at least one round of one frame");
  return o;
}

// The nth processor that this process may use.
void PinTo(int nth) {
  cpu_set_t allowed, one;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) throw std::runtime_error("no affinity");
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed) && nth-- == 0) CPU_SET(cpu, &one);
  }
  if (CPU_COUNT(&one) != 1 || sched_setaffinity(0, sizeof(one), &one) != 0) throw std::runtime_error("cannot pin");
}

// A process that runs `body` and ends with this one. REQUIRES: gRPC has made no threads yet.
class Child {
 public:
  explicit Child(const std::function<void()> & body) : pid_(fork()) {
    if (pid_ < 0) throw std::runtime_error("cannot fork");
    if (pid_ > 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int code = 0;
    try {
      body();
    } catch (const std::exception & e) {
      std::fprintf(stderr, "meshnet-bench-seam, echo: %s\n", e.what());
      code = 1;
    }
    _exit(code);
  }
  ~Child() {
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child &) = delete;
  Child & operator=(const Child &) = delete;

 private:
  const pid_t pid_;
};

void Tell(Socket & socket, const std::string & text) {
  const auto n = static_cast<uint32_t>(text.size());
  socket.WriteAll(&n, sizeof(n));
  socket.WriteAll(text.data(), n);
}

std::string Hear(Socket & socket) {
  uint32_t n = 0;
  if (!socket.ReadAll(&n, sizeof(n))) throw std::runtime_error("the other process ended");
  std::string text(n, '\0');
  if (n > 0 && !socket.ReadAll(text.data(), n)) throw std::runtime_error("the other process ended");
  return text;
}

// B's process: what a node would be told by admission and links comes over a socket pair.
void RunEcho(Socket & control) {
  EchoNode node;
  Tell(control, node.certificate().der);
  Tell(control, std::to_string(node.Listen(Hear(control))));
  for (const size_t bytes : kSizes) {
    RouteSpec spec{Hear(control), Hear(control), Hear(control), static_cast<uint32_t>(bytes / sizeof(float))};
    node.Add(spec);
    Tell(control, "added");
  }
  char byte = 0;
  if (control.ReadAll(&byte, 1)) throw std::runtime_error("nothing more was to be said");
}

std::vector<RouteSpec> ConnectRoutes(Socket & control, PingNode * node) {
  const std::string certificate = Hear(control);
  Tell(control, node->certificate().sha256);
  const std::string endpoint = "127.0.0.1:" + Hear(control);
  std::vector<RouteSpec> routes;
  for (const size_t bytes : kSizes) {
    const RouteSpec spec{NewSession(), NewTicket(), NewTicket(), static_cast<uint32_t>(bytes / sizeof(float))};
    for (const std::string & field : {spec.session, spec.up_ticket, spec.down_ticket}) Tell(control, field);
    Hear(control);
    node->Connect(spec, endpoint, certificate);
    routes.push_back(spec);
  }
  return routes;
}

using Samples = std::vector<double>;

// Appends microseconds, one per frame; what comes back must be what was sent.
void Time(int n, Samples * out, const std::function<bool()> & round_trip) {
  for (int i = 0; i < n; ++i) {
    const auto start = Clock::now();
    const bool same = round_trip();
    out->push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    if (!same) throw std::runtime_error("the echo differs");
  }
}

std::string Quantiles(Samples samples) {
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double share) { return samples[static_cast<size_t>(share * static_cast<double>(samples.size() - 1))]; };
  char text[96];
  std::snprintf(text, sizeof(text), "{\"p10\":%.1f,\"p50\":%.1f,\"p95\":%.1f}", at(0.1), at(0.5), at(0.95));
  return text;
}

class Bench {
 public:
  Bench(Socket * tcp, PingNode * node, std::vector<RouteSpec> routes) : tcp_(tcp), node_(node), routes_(std::move(routes)) {
    for (const size_t bytes : kSizes) {
      std::string payload(bytes, '\0');
      for (size_t i = 0; i < bytes; ++i) payload[i] = static_cast<char>(i * 7 % 64);  // no NaN in it
      payloads_.push_back(std::move(payload));
    }
  }

  // Blocks take turns, so that whatever disturbs the machine meets both.
  std::string Round(int frames) {
    std::vector<Samples> tcp(routes_.size()), seam(routes_.size());
    for (int done = 0; done < frames; done += kBlockFrames) {
      const int n = std::min(kBlockFrames, frames - done);
      for (size_t i = 0; i < routes_.size(); ++i) {
        Time(n, &tcp[i], [&] { return OverTcp(payloads_[i]); });
        Time(n, &seam[i], [&] {
          const meshnet::Frame back = node_->RoundTrip(routes_[i], payloads_[i]);
          return back.tensors_size() == 1 && back.tensors(0).data() == payloads_[i];
        });
      }
    }
    std::string sizes;
    for (size_t i = 0; i < routes_.size(); ++i) {
      sizes += (i == 0 ? "{\"bytes\":" : ",{\"bytes\":") + std::to_string(payloads_[i].size()) + ",\"tcp_us\":" +
               Quantiles(std::move(tcp[i])) + ",\"seam_us\":" + Quantiles(std::move(seam[i])) + "}";
    }
    return sizes;
  }

  void Close() {
    for (const RouteSpec & route : routes_) node_->Close(route);
    node_->WaitEnded();
  }

 private:
  bool OverTcp(const std::string & payload) {
    const auto n = static_cast<uint32_t>(payload.size());
    message_.assign(reinterpret_cast<const char *>(&n), sizeof(n));
    message_ += payload;
    RoundTripTcp(*tcp_, message_, &back_);
    return back_ == message_;
  }

  Socket * const tcp_;
  PingNode * const node_;
  const std::vector<RouteSpec> routes_;
  std::vector<std::string> payloads_;
  std::string message_, back_;
};

void Run(const Options & o) {
  uint16_t port = 0;
  Socket listener(ListenLoopback(&port));
  const Child tcp_echo([&] {
    if (o.pin) PinTo(1);
    Socket socket(AcceptOne(listener.fd()));
    EchoTcp(socket);
  });
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) throw std::runtime_error("no socket pair");
  Socket ours(pair[0]);
  const Child seam_echo([&] {
    close(pair[0]);
    if (o.pin) PinTo(1);
    Socket theirs(pair[1]);
    RunEcho(theirs);
  });
  close(pair[1]);
  if (o.pin) PinTo(0);

  Socket tcp(ConnectLoopback(port));
  PingNode node;
  Bench bench(&tcp, &node, ConnectRoutes(ours, &node));
  std::printf("{\"grpc\":\"%s\",\"pinned\":%s}\n", grpc::Version().c_str(), o.pin ? "true" : "false");
  bench.Round(std::max(o.warmup, 1));
  for (int round = 1; round <= o.rounds; ++round) {
    std::printf("{\"round\":%d,\"sizes\":[%s]}\n", round, bench.Round(o.frames).c_str());
    std::fflush(stdout);
  }
  bench.Close();
}

}  // namespace

int main(int argc, char ** argv) {
  return meshnet::ToolMain(argc, argv, "meshnet-bench-seam", kUsage, [&] {
    Run(Parse(argc, argv));
    return 0;
  });
}
