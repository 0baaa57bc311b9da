#include "control.h"

#include <sys/resource.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace meshnet::delay {
namespace {

using nlohmann::json;

double Milliseconds(const timeval & t) { return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_usec) / 1e3; }

double CpuMs() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return Milliseconds(usage.ru_utime) + Milliseconds(usage.ru_stime);
}

json PairJson(size_t from, size_t to, const Link & link) {
  const LinkCounters & c = link.counters();
  return {{"from", from},
          {"to", to},
          {"packets", c.packets},
          {"bytes", c.bytes},
          {"tcp_payload_bytes", c.tcp_payload_bytes},
          {"dropped_packets", c.dropped_packets},
          {"dropped_bytes", c.dropped_bytes},
          {"refused_packets", c.refused_packets},
          {"queue_peak_bytes", c.queue_peak_bytes}};
}

json Error(const std::string & text) { return {{"error", text}}; }

// A whole number under this name, or `otherwise` without the name. Throws json::exception when it is something else.
template <typename T>
T Number(const json & request, const char * name, T otherwise) {
  const auto found = request.find(name);
  if (found == request.end()) return otherwise;
  if (!found->is_number_unsigned()) throw std::invalid_argument(std::string(name) + " is not a whole number");
  return found->get<T>();
}

json SetLinks(const json & request, Switch * links) {
  for (const auto & [key, value] : request.items()) {
    if (key != "do" && key != "delay_us" && key != "rate_bps" && key != "queue_bytes" && key != "from" && key != "to") {
      return Error("unknown field " + key);
    }
  }
  const size_t n = links->namespaces().size();
  const size_t from = Number(request, "from", n), to = Number(request, "to", n);
  if ((request.contains("from") && from >= n) || (request.contains("to") && to >= n)) return Error("no such namespace");
  std::vector<std::pair<Link *, LinkSettings>> changes;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      if (i == j || (from < n && from != i) || (to < n && to != j)) continue;
      LinkSettings settings = links->link(i, j).settings();
      settings.delay_us = Number(request, "delay_us", settings.delay_us);
      settings.rate_bps = Number(request, "rate_bps", settings.rate_bps);
      settings.queue_bytes = Number(request, "queue_bytes", settings.queue_bytes);
      if (const std::string refusal = Refusal(settings); !refusal.empty()) return Error(refusal);
      changes.emplace_back(&links->link(i, j), settings);
    }
  }
  if (changes.empty()) return Error("no link leads from a namespace to itself");
  for (const auto & [link, settings] : changes) link->Set(settings);
  return {{"ok", true}};
}

json CountersJson(Switch * links) {
  const auto & namespaces = links->namespaces();
  json pairs = json::array(), sides = json::array();
  for (size_t i = 0; i < namespaces.size(); ++i) {
    for (size_t j = 0; j < namespaces.size(); ++j) {
      if (i != j) pairs.push_back(PairJson(i, j, links->link(i, j)));
    }
    sides.push_back({{"unroutable_packets", links->ingress(i).unroutable_packets},
                     {"malformed_packets", links->ingress(i).malformed_packets},
                     {"device_drops", namespaces[i].DeviceDrops()}});
  }
  const Switch::Lateness & late = links->lateness();
  const double mean_us = late.packets == 0 ? 0 : static_cast<double>(late.total_ns) / 1e3 / static_cast<double>(late.packets);
  return {{"pairs", pairs},
          {"namespaces", sides},
          {"held_bytes", links->held_bytes()},
          {"late_mean_us", mean_us},
          {"late_max_us", static_cast<double>(late.max_ns) / 1e3},
          {"cpu_ms", CpuMs()}};
}

}  // namespace

bool LineReader::Read(int fd, const std::function<void(const std::string &)> & take) {
  char buffer[kMaxControlLine];
  const ssize_t n = read(fd, buffer, sizeof(buffer));
  if (n <= 0) return n < 0 && (errno == EINTR || errno == EAGAIN);
  for (ssize_t i = 0; i < n; ++i) {
    const bool end = buffer[i] == '\n';
    if (!end && !skipping_) line_ += buffer[i];
    if (!end && line_.size() < kMaxControlLine) continue;
    if (!skipping_) take(line_);
    skipping_ = !end;
    line_.clear();
  }
  return true;
}

std::string Answer(const std::string & line, Switch * links) {
  const json request = json::parse(line, nullptr, false);
  if (!request.is_object() || !request.contains("do")) return Error("not a request").dump();
  try {
    if (request["do"] == "set") return SetLinks(request, links).dump();
    if (request["do"] == "counters") return CountersText(links);
    if (request["do"] == "reset") {
      links->ResetCounters();
      return json{{"ok", true}}.dump();
    }
    return Error("unknown request").dump();
  } catch (const std::exception & e) {
    return Error(e.what()).dump(-1, ' ', false, json::error_handler_t::replace);
  }
}

std::string CountersText(Switch * links) { return CountersJson(links).dump(); }

std::string Refusal(const LinkSettings & settings) {
  if (settings.delay_us < 0 || settings.delay_us > kMaxDelayUs) return "delay_us is above " + std::to_string(kMaxDelayUs);
  if (settings.rate_bps != 0 && (settings.rate_bps < kMinRateBps || settings.rate_bps > kMaxRateBps)) {
    return "rate_bps is neither 0 nor in " + std::to_string(kMinRateBps) + ".." + std::to_string(kMaxRateBps);
  }
  if (settings.queue_bytes < kMaxPacketBytes || settings.queue_bytes > kMaxQueueBytes) {
    return "queue_bytes is not in " + std::to_string(kMaxPacketBytes) + ".." + std::to_string(kMaxQueueBytes);
  }
  return "";
}

}  // namespace meshnet::delay
