// A wide-area network between network namespaces of one machine: every packet is held, and a rate may be set.
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "control.h"
#include "options.h"
#include "switch.h"

namespace {

using namespace meshnet::delay;
using nlohmann::json;

// 11.77.0.0/24: public, so that libp2p takes its addresses for reachable ones. No packet leaves the namespaces.
constexpr uint32_t kNetwork = 11u << 24 | 77u << 16;
constexpr int kNice = -10;
constexpr int kMaxEvents = 16;

// What a connection's speed depends on, for the record.
const std::vector<std::string> kToldSysctls = {
    "net.ipv4.tcp_congestion_control", "net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_rmem",               "net.ipv4.tcp_wmem",                  "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_timestamps",         "net.core.default_qdisc",             "net.core.rmem_max"};

// A packet's time must not wait for somebody's time slice. Gives what was allowed.
const char * RaisePriority() {
  sched_param lowest{};
  lowest.sched_priority = sched_get_priority_min(SCHED_FIFO);
  if (sched_setscheduler(0, SCHED_FIFO, &lowest) == 0) return "fifo";
  if (setpriority(PRIO_PROCESS, 0, kNice) == 0) return "nice";
  std::fprintf(stderr, "meshnet-delay-line: no elevated priority: %s\n", std::strerror(errno));
  return "normal";
}

void PinTo(int core) {
  if (core < 0) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  Require(sched_setaffinity(0, sizeof(one), &one) == 0, "--core " + std::to_string(core));
}

Switch Open(const Options & options) {
  std::vector<Namespace> namespaces;
  for (size_t i = 0; i < options.namespaces; ++i) {
    namespaces.push_back(Namespace::Create({kNetwork + 1 + static_cast<uint32_t>(i), options.mtu}, options.sysctls));
  }
  return {std::move(namespaces), options.link};
}

void Say(const std::string & line) {
  std::fprintf(stdout, "%s\n", line.c_str());
  std::fflush(stdout);
}

std::string ReadyText(const Switch & links, const Options & options, const char * priority) {
  json namespaces = json::array(), sysctls = json::object();
  for (const Namespace & one : links.namespaces()) {
    const uint32_t a = one.address();
    const std::string address = std::to_string(a >> 24) + "." + std::to_string(a >> 16 & 255) + "." +
                                std::to_string(a >> 8 & 255) + "." + std::to_string(a & 255);
    namespaces.push_back({{"address", address}, {"fd", one.net_fd()}});
  }
  for (const auto & [name, value] : links.namespaces()[0].Read(kToldSysctls)) sysctls[name] = value;
  return json{{"ready", true}, {"namespaces", namespaces}, {"mtu", options.mtu}, {"priority", priority}, {"sysctls", sysctls}}
      .dump();
}

// Reads and hands over until stdin closes or a signal comes.
class Loop {
 public:
  Loop(Switch * links, int64_t spin_ns) : links_(links), spin_ns_(spin_ns), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    Require(epoll_.get() >= 0, "epoll");
    sigset_t set;
    sigemptyset(&set);
    for (const int number : {SIGTERM, SIGHUP}) sigaddset(&set, number);
    Require(sigprocmask(SIG_BLOCK, &set, nullptr) == 0, "signals");
    signals_.emplace(signalfd(-1, &set, SFD_CLOEXEC));
    Require(signals_->get() >= 0, "signals");
    for (size_t i = 0; i < links->namespaces().size(); ++i) Watch(links->namespaces()[i].tun_fd(), i);
    Watch(signals_->get(), kSignal);
    Watch(STDIN_FILENO, kStdin);
  }

  void Run() {
    for (;;) {
      const int64_t next = links_->Deliver();
      epoll_event events[kMaxEvents];
      const int n = Wait(next, events);
      for (int i = 0; i < n; ++i) {
        const uint64_t who = events[i].data.u64;
        if (who == kSignal) return;
        if (who != kStdin) links_->Receive(who);
        else if (!reader_.Read(STDIN_FILENO, [&](const std::string & line) { Say(Answer(line, links_)); })) return;
      }
    }
  }

 private:
  static constexpr uint64_t kSignal = kMaxNamespaces, kStdin = kMaxNamespaces + 1;

  void Watch(int fd, uint64_t who) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = who;
    Require(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0, who == kStdin ? "stdin must be a pipe" : "epoll");
  }

  // Sleeps until shortly before the next departure, since a sleeping core wakes late; then it polls.
  int Wait(int64_t next_ns, epoll_event * events) {
    const int64_t sleep_ns = std::max<int64_t>(0, next_ns == kNever ? 0 : next_ns - spin_ns_ - NowNs());
    const timespec timeout{sleep_ns / 1'000'000'000, sleep_ns % 1'000'000'000};
    const int n = epoll_pwait2(epoll_.get(), events, kMaxEvents, next_ns == kNever ? nullptr : &timeout, nullptr);
    Require(n >= 0 || errno == EINTR, "epoll_pwait2");
    return n;
  }

  Switch * const links_;
  const int64_t spin_ns_;
  LineReader reader_;
  Fd epoll_;
  std::optional<Fd> signals_;
};

int SweepPaths(const std::vector<std::string> & paths) {
  std::vector<Fd> open;
  std::vector<int> fds;
  for (const std::string & path : paths) {
    open.push_back(meshnet::delay::Open(path, O_RDONLY));
    fds.push_back(open.back().get());
  }
  return Sweep(fds) ? 0 : 1;
}

int RunLine(const Options & options) {
  // An interrupt from the keyboard is for the owner, who then closes our stdin.
  signal(SIGINT, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  Require(prctl(PR_SET_PDEATHSIG, SIGTERM) == 0, "parent death signal");
  prctl(PR_SET_TIMERSLACK, 1);
  Switch links = Open(options);
  if (options.check) {
    Say(json{{"ready", true}}.dump());
    return 0;
  }
  PinTo(options.core);
  Loop loop(&links, options.spin_us * 1000);
  Say(ReadyText(links, options, RaisePriority()));
  loop.Run();
  Say(json{{"final", json::parse(CountersText(&links))}}.dump());
  std::vector<int> inside;
  for (const Namespace & one : links.namespaces()) inside.push_back(one.net_fd());
  return Sweep(inside) ? 0 : 1;
}

}  // namespace

int main(int argc, char ** argv) {
  try {
    const Options options = ParseOptions(argc, argv);
    if (options.help) {
      std::fputs(Usage(), stdout);
      return 0;
    }
    return options.sweep.empty() ? RunLine(options) : SweepPaths(options.sweep);
  } catch (const std::exception & e) {
    std::fprintf(stderr, "meshnet-delay-line: %s\n", e.what());
    return 1;
  }
}
