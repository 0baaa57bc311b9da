#include "options.h"

#include <charconv>

#include "control.h"
#include "switch.h"

namespace meshnet::delay {
namespace {

constexpr int kMinMtu = 576;  // what every host must take whole, RFC 791
constexpr int64_t kMaxSpinUs = 1000;
constexpr int kMaxCore = 1023;
constexpr size_t kMaxSysctls = 32;

template <typename T>
T WholeNumber(const std::string & name, const std::string & value, T lowest, T highest) {
  T number{};
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < lowest || number > highest) {
    throw std::runtime_error(name + " takes a whole number in " + std::to_string(lowest) + ".." + std::to_string(highest));
  }
  return number;
}

void AddSysctl(const std::string & text, Sysctls * out) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) throw std::runtime_error("--sysctl takes NAME=VALUE");
  if (out->size() == kMaxSysctls) throw std::runtime_error("more than " + std::to_string(kMaxSysctls) + " of --sysctl");
  out->emplace_back(text.substr(0, equals), text.substr(equals + 1));
}

}  // namespace

Options ParseOptions(int argc, char ** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--help" || name == "--check") {
      (name == "--help" ? o.help : o.check) = true;
      continue;
    }
    if (++i == argc) throw std::runtime_error(name + " is unknown or needs a value");
    const std::string value = argv[i];
    if (name == "--namespaces") o.namespaces = WholeNumber(name, value, kMinNamespaces, kMaxNamespaces);
    else if (name == "--delay-us") o.link.delay_us = WholeNumber<int64_t>(name, value, 0, kMaxDelayUs);
    else if (name == "--rate-bps") o.link.rate_bps = WholeNumber<uint64_t>(name, value, 0, kMaxRateBps);
    else if (name == "--queue-bytes") o.link.queue_bytes = WholeNumber<uint64_t>(name, value, kMaxPacketBytes, kMaxQueueBytes);
    else if (name == "--mtu") o.mtu = WholeNumber(name, value, kMinMtu, static_cast<int>(kMaxPacketBytes));
    else if (name == "--spin-us") o.spin_us = WholeNumber<int64_t>(name, value, 0, kMaxSpinUs);
    else if (name == "--core") o.core = WholeNumber(name, value, 0, kMaxCore);
    else if (name == "--sysctl") AddSysctl(value, &o.sysctls);
    else if (name == "--sweep") o.sweep.push_back(value);
    else throw std::runtime_error("unknown option " + name);
  }
  if (const std::string refusal = Refusal(o.link); !refusal.empty()) throw std::runtime_error(refusal);
  return o;
}

const char * Usage() {
  return R"(usage: meshnet-delay-line [options]

Makes network namespaces without a name, joins them by TUN devices, and holds every IPv4 packet between them. Ends, with
all that runs in them, when stdin closes or its parent dies. Needs root and /dev/net/tun.

  --namespaces N     2 to 8, with the addresses 11.77.0.1 and on (default 2)
  --delay-us N       how long each packet is held, each way (default 0)
  --rate-bps N       bits of IP packets per second, each way between each two; 0 for no limit (default 0)
  --queue-bytes N    what may wait for a limited rate; more is dropped and counted (default 1 MiB)
  --mtu N            of the devices (default 1500)
  --core N           the processor core to run on (default any)
  --spin-us N        how long before a packet's time to poll in place of sleep (default 50)
  --sysctl NAME=V    set in every namespace; may be given several times
  --check            make all of it, say so, end
  --sweep PATH       kill what runs in the namespace at PATH and end; may be given several times

Prints one line {"ready":true,"namespaces":[{"address","fd"}],...}: a namespace is entered by
`nsenter --net=/proc/PID/fd/FD`. Then, for each line on stdin, one line: {"do":"set",...}, {"do":"counters"},
{"do":"reset"}. At the end {"final":...} with the counters.
)";
}

}  // namespace meshnet::delay
