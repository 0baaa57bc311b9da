#include "sampler.h"

#include <llama-cpp.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "engine_abort_guard.h"
#include "lane_bundle.h"
#include "sampler_grammar.h"

namespace meshnet {
namespace {

// Finalizer of splitmix64: equal inputs give equal draws, neighbouring positions unrelated ones.
uint32_t DrawSeed(uint64_t seed, uint32_t pos) {
  uint64_t x = seed + 0x9e3779b97f4a7c15ULL * (uint64_t{pos} + 1);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  const auto folded = static_cast<uint32_t>((x ^ (x >> 31)) >> 32);
  return folded == LLAMA_DEFAULT_SEED ? 0 : folded;  // that value means "random" to llama.cpp
}

int32_t ArgMax(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace

struct Sampler::Impl {
  const llama_vocab * vocab = nullptr;
  seam::v1::Sampling params;
  int32_t logprobs = -1;
  llama_sampler_ptr adjust;   // what changes logits before the filters; has state
  llama_sampler_ptr filters;  // top-k, top-p, min-p, temperature; stateless
  std::unique_ptr<Grammar> grammar;
  bool adjusts = false;
  std::vector<llama_token_data> candidates;

  // All tokens, adjusted.
  llama_token_data_array Candidates(std::span<const float> logits) {
    candidates.resize(logits.size());
    for (size_t i = 0; i < logits.size(); i++) {
      candidates[i] = {static_cast<llama_token>(i), logits[i], 0};
    }
    llama_token_data_array array{candidates.data(), candidates.size(), -1, false};
    llama_sampler_apply(adjust.get(), &array);
    return array;
  }

  // REQUIRES a candidate.
  int32_t Choose(llama_token_data_array array, uint32_t pos) const {
    if (params.temperature() == 0) {
      const auto less = [](const llama_token_data & a, const llama_token_data & b) { return a.logit < b.logit; };
      return std::max_element(array.data, array.data + array.size, less)->id;
    }
    llama_sampler_apply(filters.get(), &array);
    const llama_sampler_ptr dist(llama_sampler_init_dist(DrawSeed(params.seed(), pos)));
    llama_sampler_apply(dist.get(), &array);
    return array.data[array.selected].id;
  }

  // The draw that the grammar allows; the free one mostly is, and testing one token is far cheaper than testing all.
  Status Constrain(std::span<const float> logits, uint32_t pos, int32_t * token) {
    bool fits = false;
    if (Status s = grammar->Fits(*token, &fits); !s.ok()) return s;
    if (!fits) {
      std::vector<bool> allowed;
      if (Status s = grammar->Allowed(&allowed); !s.ok()) return s;
      llama_token_data_array array = Candidates(logits);
      const auto banned = [&](const llama_token_data & c) { return !allowed[static_cast<size_t>(c.id)]; };
      array.size = static_cast<size_t>(std::remove_if(array.data, array.data + array.size, banned) - array.data);
      array.sorted = false;
      if (array.size == 0) return {Code::kGrammarInvalid, "no token fits the grammar here"};
      *token = Choose(array, pos);
    }
    return grammar->Accept(*token);
  }

  // The largest logit is the token.
  bool plain() const { return !grammar && !adjusts && params.temperature() == 0; }

  Status DrawToken(std::span<const float> logits, uint32_t pos, int32_t * token) {
    if (plain()) {
      *token = ArgMax(logits);
      return {};
    }
    *token = Choose(Candidates(logits), pos);
    if (grammar) {
      if (Status s = Constrain(logits, pos, token); !s.ok()) return s;
    }
    llama_sampler_accept(adjust.get(), *token);
    return {};
  }
};

Sampler::Sampler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Sampler::~Sampler() = default;

Status Sampler::Create(const seam::v1::Turn & turn, uint32_t positions, TokenPieces * pieces,
                       std::unique_ptr<Sampler> * out) {
  auto impl = std::make_unique<Impl>();
  const auto & s = turn.sampling();
  impl->vocab = pieces->vocab();
  const int32_t n_vocab = llama_vocab_n_tokens(impl->vocab);
  impl->params = s;
  impl->logprobs = turn.logprobs();

  impl->adjust.reset(llama_sampler_chain_init(llama_sampler_chain_default_params()));
  if (s.logit_bias_size() > 0) {
    std::vector<llama_logit_bias> biases;
    for (const auto & bias : s.logit_bias()) biases.push_back({bias.token(), bias.bias()});
    llama_sampler_chain_add(impl->adjust.get(),
                            llama_sampler_init_logit_bias(n_vocab, static_cast<int32_t>(biases.size()), biases.data()));
  }
  if (s.frequency_penalty() != 0 || s.presence_penalty() != 0) {
    const auto last_n = static_cast<int32_t>(std::min({turn.max_tokens(), positions, uint32_t{INT32_MAX}}));
    llama_sampler_chain_add(impl->adjust.get(), llama_sampler_init_penalties(n_vocab, last_n, 1, s.frequency_penalty(),
                                                                             s.presence_penalty()));
  }
  impl->adjusts = llama_sampler_chain_n(impl->adjust.get()) > 0;

  impl->filters.reset(llama_sampler_chain_init(llama_sampler_chain_default_params()));
  auto * filters = impl->filters.get();
  if (s.top_k() > 0) {
    llama_sampler_chain_add(
        filters, llama_sampler_init_top_k(static_cast<int32_t>(std::min(s.top_k(), static_cast<uint32_t>(n_vocab)))));
  }
  if (s.top_p() > 0 && s.top_p() < 1) llama_sampler_chain_add(filters, llama_sampler_init_top_p(s.top_p(), 1));
  if (s.min_p() > 0) llama_sampler_chain_add(filters, llama_sampler_init_min_p(s.min_p(), 1));
  llama_sampler_chain_add(filters, llama_sampler_init_temp(s.temperature()));

  if (!turn.grammar().empty()) {
    try {
      const AbortGuard guard;
      if (Status made = Grammar::Create(turn.grammar(), pieces, &impl->grammar); !made.ok()) return made;
    } catch (const std::exception & e) {
      return {Code::kGrammarInvalid, e.what()};
    }
  }
  *out = std::unique_ptr<Sampler>(new Sampler(std::move(impl)));
  return {};
}

bool Sampler::quick() const { return impl_->plain() && impl_->logprobs < 0; }

Status Sampler::Draw(std::span<const float> logits, uint32_t pos, Drawn * out) {
  if (!AllFinite(logits)) return {Code::kValueInvalid, "a logit is not finite"};
  try {
    const AbortGuard guard;
    if (Status s = impl_->DrawToken(logits, pos, &out->token); !s.ok()) return s;
  } catch (const std::exception & e) {
    return {impl_->grammar ? Code::kGrammarInvalid : Code::kInternal, e.what()};
  }
  out->end_of_generation = llama_vocab_is_eog(impl_->vocab, out->token);
  out->logprobs.reset();
  if (impl_->logprobs >= 0) {
    out->logprobs = LogprobsOf(logits, out->token, static_cast<uint32_t>(impl_->logprobs));
  }
  return {};
}

seam::v1::TokenLogprobs LogprobsOf(std::span<const float> logits, int32_t token, uint32_t n_top) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  const double log_sum = std::log(sum) + largest;
  const auto of = [&](int32_t id) { return static_cast<float>(logits[static_cast<size_t>(id)] - log_sum); };

  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto n = std::min<size_t>(n_top, ids.size());
  std::partial_sort(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(n), ids.end(), [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)];
    const float y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  });
  seam::v1::TokenLogprobs out;
  out.set_logprob(of(token));
  for (size_t i = 0; i < n; i++) {
    out.add_top_ids(ids[i]);
    out.add_top_logprobs(of(ids[i]));
  }
  return out;
}

}  // namespace meshnet
