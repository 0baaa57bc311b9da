#include "whole_job.h"

#include <llama-cpp.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

namespace meshnet::whole {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

double MsBetween(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval & t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double PeakMiB() {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    double kib = 0;
    if (word == "VmHWM:" && file >> kib) return kib / 1024;
  }
  throw std::runtime_error("the kernel does not tell the peak memory");
}

struct Job {
  std::vector<std::vector<int32_t>> prompts;
  uint32_t output = 0;
  json sampling;  // null: greedy
  std::chrono::milliseconds pause{0};  // idle before each decode step
};

Job ParseJob(const Model & model, const Options & options, const std::string & line) {
  if (line.size() > kMaxLineBytes) {
    throw std::invalid_argument("a line has at most " + std::to_string(kMaxLineBytes) + " bytes");
  }
  const json in = json::parse(line);
  Job job;
  const auto prompts = in.at("prompts").get<std::vector<std::vector<int64_t>>>();
  const auto output = in.at("output").get<int64_t>();
  if (const auto sampling = in.find("sampling"); sampling != in.end()) job.sampling = *sampling;
  const auto pause_ms = in.value("pause_ms", int64_t{0});
  if (pause_ms < 0 || pause_ms > kMaxPauseMs) {
    throw std::invalid_argument("pause_ms is 0 to " + std::to_string(kMaxPauseMs));
  }
  job.pause = std::chrono::milliseconds(pause_ms);
  if (prompts.empty() || prompts.size() > options.n_sessions) {
    throw std::invalid_argument("1 to " + std::to_string(options.n_sessions) + " prompts, not " +
                                std::to_string(prompts.size()));
  }
  if (output < 1 || output > kMaxOutput) throw std::invalid_argument("output is 1 to " + std::to_string(kMaxOutput));
  job.output = static_cast<uint32_t>(output);
  const size_t context = prompts[0].size();
  for (const auto & prompt : prompts) {
    if (prompt.empty() || prompt.size() != context) throw std::invalid_argument("the prompts are not of one length");
    for (const int64_t id : prompt) {
      if (id < 0 || id >= model.info().n_vocab) {
        throw std::invalid_argument("token " + std::to_string(id) + " is not in the vocabulary");
      }
    }
    job.prompts.emplace_back(prompt.begin(), prompt.end());
  }
  // The last token is given, not computed on.
  const uint64_t cells = job.prompts.size() * (context + job.output - 1);
  if (cells > options.n_cells) {
    throw std::invalid_argument(std::to_string(cells) + " cells are needed, --cells is " +
                                std::to_string(options.n_cells));
  }
  return job;
}

// Chooses tokens for one session: the largest logit, or llama.cpp's own chain.
class Chooser {
 public:
  Chooser(const json & sampling, uint32_t session) {
    if (sampling.is_null()) return;
    chain_.reset(llama_sampler_chain_init(llama_sampler_chain_default_params()));
    llama_sampler_chain_add(chain_.get(), llama_sampler_init_top_k(sampling.at("top_k").get<int32_t>()));
    llama_sampler_chain_add(chain_.get(), llama_sampler_init_top_p(sampling.at("top_p").get<float>(), 1));
    llama_sampler_chain_add(chain_.get(), llama_sampler_init_temp(sampling.at("temperature").get<float>()));
    llama_sampler_chain_add(chain_.get(), llama_sampler_init_dist(sampling.at("seed").get<uint32_t>() + session));
  }

  int32_t operator()(const float * logits, int32_t n_vocab) {
    if (!chain_) return static_cast<int32_t>(std::max_element(logits, logits + n_vocab) - logits);
    candidates_.resize(static_cast<size_t>(n_vocab));
    for (int32_t i = 0; i < n_vocab; i++) candidates_[static_cast<size_t>(i)] = {i, logits[i], 0};
    llama_token_data_array array{candidates_.data(), candidates_.size(), -1, false};
    llama_sampler_apply(chain_.get(), &array);
    return array.data[array.selected].id;
  }

 private:
  llama_sampler_ptr chain_;
  std::vector<llama_token_data> candidates_;
};

class Run {
 public:
  Run(Model & model, const Job & job) : model_(model), job_(job), tokens_(job.prompts.size()) {
    for (size_t s = 0; s < job.prompts.size(); s++) choosers_.emplace_back(job.sampling, static_cast<uint32_t>(s));
  }

  json operator()() {
    const double cpu = CpuSeconds();
    const auto start = Clock::now();
    Prefill();
    auto last = Clock::now();
    json out = {{"prefill_ms", MsBetween(start, last)}, {"step_ms", json::array()}};
    double decode_ms = 0;
    compute_ms_ = sample_ms_ = 0;
    for (uint32_t i = 1; i < job_.output; i++) {
      if (job_.pause.count() > 0) {
        std::this_thread::sleep_for(job_.pause);
        last = Clock::now();
      }
      Step(i);
      const auto now = Clock::now();
      const double step_ms = MsBetween(last, now);
      out["step_ms"].push_back(step_ms);
      decode_ms += step_ms;
      last = now;
    }
    out["decode_wall_ms"] = decode_ms;
    out["compute_ms"] = compute_ms_;
    out["sample_ms"] = sample_ms_;
    out["cpu_s"] = CpuSeconds() - cpu;
    out["peak_mib"] = PeakMiB();
    out["tokens"] = tokens_;
    return out;
  }

 private:
  // Rows of all prompts, session after session, in batches as large as the model takes.
  void Prefill() {
    for (size_t s = 0; s < job_.prompts.size(); s++) {
      const auto & prompt = job_.prompts[s];
      for (size_t i = 0; i < prompt.size(); i++) {
        rows_.push_back({prompt[i], static_cast<int32_t>(i), static_cast<int32_t>(s), i + 1 == prompt.size()});
        if (rows_.size() == model_.info().n_rows) Flush();
      }
    }
    Flush();
  }

  void Step(uint32_t i) {
    for (size_t s = 0; s < tokens_.size(); s++) {
      const auto pos = static_cast<int32_t>(job_.prompts[s].size() + i - 1);
      rows_.push_back({tokens_[s].back(), pos, static_cast<int32_t>(s), true});
      if (rows_.size() == model_.info().n_rows) Flush();
    }
    Flush();
  }

  // Computes the collected rows and chooses a token wherever one is due.
  void Flush() {
    if (rows_.empty()) return;
    const auto start = Clock::now();
    model_.Decode(rows_);
    const auto computed = Clock::now();
    for (size_t row = 0; row < rows_.size(); row++) {
      if (!rows_[row].want_logits) continue;
      const auto session = static_cast<size_t>(rows_[row].session);
      tokens_[session].push_back(choosers_[session](model_.Logits(row), model_.info().n_vocab));
    }
    rows_.clear();
    compute_ms_ += MsBetween(start, computed);
    sample_ms_ += MsBetween(computed, Clock::now());
  }

  Model & model_;
  const Job & job_;
  std::vector<Chooser> choosers_;
  std::vector<std::vector<int32_t>> tokens_;
  std::vector<Row> rows_;
  double compute_ms_ = 0, sample_ms_ = 0;
};

}  // namespace

std::string Answer(Model & model, const Options & options, const std::string & line) {
  json out;
  try {
    out = Run(model, ParseJob(model, options, line))();
  } catch (const std::exception & e) {
    out = {{"error", e.what()}};
  }
  for (uint32_t session = 0; session < options.n_sessions; session++) model.Clear(static_cast<int32_t>(session));
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace meshnet::whole
