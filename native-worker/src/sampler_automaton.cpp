#include "sampler_automaton.h"

#include <algorithm>
#include <unordered_set>

namespace meshnet {
namespace {

// Generous for JSON of any schema, whose sets hold tens of stacks; a few megabytes for a grammar that is out to hurt.
constexpr size_t kMaxStacks = 2048;  // in one set
constexpr size_t kMaxNodes = 1 << 17;
constexpr size_t kMaxSets = 1 << 14;
constexpr size_t kMaxInSets = 1 << 20;  // stacks in all sets together
constexpr size_t kMaxSteps = 1 << 19;
constexpr uint32_t kMaxDepth = 1024;      // a deeper nesting is not allowed to begin
constexpr uint64_t kMaxWork = 8'000'000;  // elements and stacks looked at for one token; some tenths of a second

bool IsEnd(const llama_grammar_element * e) { return e->type == LLAMA_GRETYPE_END || e->type == LLAMA_GRETYPE_ALT; }

// Walks the ranges of the character at `e`; gives the element after it.
template <typename Range>
const llama_grammar_element * ForRanges(const llama_grammar_element * e, Range range) {
  do {
    if (e->type == LLAMA_GRETYPE_CHAR_ANY) {
      range(0U, UINT32_MAX);
      e += 1;
    } else if (e[1].type == LLAMA_GRETYPE_CHAR_RNG_UPPER) {
      range(e->value, e[1].value);
      e += 2;
    } else {
      range(e->value, e->value);
      e += 1;
    }
  } while (e->type == LLAMA_GRETYPE_CHAR_ALT);
  return e;
}

struct Matched {
  bool yes = false;
  const llama_grammar_element * after = nullptr;
};

Matched Match(const llama_grammar_element * e, uint32_t code_point) {
  bool found = false;
  const auto * after =
      ForRanges(e, [&](uint32_t low, uint32_t high) { found = found || (low <= code_point && code_point <= high); });
  return {found != (e->type == LLAMA_GRETYPE_CHAR_NOT), after};
}

}  // namespace

Grammar::Machine::Machine(llama_grammar_rules rules, size_t root, GrammarBudget::Clock clock)
    : rules_(std::move(rules)), budget_(clock) {
  Clear();
  Begin();
  std::vector<int32_t> stacks;
  for (const Element * e = rules_[root].data();;) {
    Expand(IsEnd(e) ? 0 : Push(e, 0), &stacks);
    while (!IsEnd(e)) e++;
    if (e->type == LLAMA_GRETYPE_END) break;
    e++;
  }
  start_ = SetOf(std::move(stacks));
}

void Grammar::Machine::Clear() {
  nodes_.assign(1, {});
  node_of_.clear();
  sets_.assign(1, {});
  set_of_.clear();
  set_of_[{}] = kDead;
  step_of_.clear();
  n_in_sets_ = 0;
}

void Grammar::Machine::Work(uint64_t n) {
  work_ += n;
  budget_.Spend(n);
  if (work_ > kMaxWork) exhausted_ = true;
}

int32_t Grammar::Machine::Push(const Element * top, int32_t below) {
  const auto number = static_cast<int32_t>(nodes_.size());
  const auto [it, fresh] = node_of_.try_emplace({top, below}, number);
  if (fresh) nodes_.push_back({top, below, nodes_[static_cast<size_t>(below)].depth + 1});
  if (nodes_.size() > kMaxNodes) exhausted_ = true;
  return it->second;
}

void Grammar::Machine::Expand(int32_t stack, std::vector<int32_t> * out) {
  std::vector<int32_t> todo = {stack};
  std::unordered_set<int32_t> seen;
  while (!todo.empty() && !exhausted()) {
    const int32_t current = todo.back();
    todo.pop_back();
    Work(1);
    if (!seen.insert(current).second) continue;
    const Node node = nodes_[static_cast<size_t>(current)];
    if (current == 0 || node.top->type != LLAMA_GRETYPE_RULE_REF) {
      out->push_back(current);
      if (out->size() > kMaxStacks) exhausted_ = true;
      continue;
    }
    if (node.depth > kMaxDepth) continue;
    const int32_t below = IsEnd(node.top + 1) ? node.below : Push(node.top + 1, node.below);
    for (const Element * e = rules_[node.top->value].data();;) {
      todo.push_back(IsEnd(e) ? below : Push(e, below));
      const Element * begin = e;
      while (!IsEnd(e)) e++;
      Work(static_cast<uint64_t>(e - begin));
      if (e->type == LLAMA_GRETYPE_END) break;
      e++;
    }
  }
}

int32_t Grammar::Machine::SetOf(std::vector<int32_t> stacks) {
  Work(stacks.size());
  std::sort(stacks.begin(), stacks.end());
  stacks.erase(std::unique(stacks.begin(), stacks.end()), stacks.end());
  const auto [it, fresh] = set_of_.try_emplace(stacks, static_cast<int32_t>(sets_.size()));
  if (fresh) {
    n_in_sets_ += stacks.size();
    sets_.push_back(std::move(stacks));
  }
  if (sets_.size() > kMaxSets || n_in_sets_ > kMaxInSets) exhausted_ = true;
  return it->second;
}

int32_t Grammar::Machine::Step(int32_t set, uint32_t code_point) {
  budget_.Spend(1);
  if (set == kDead || exhausted()) return kDead;
  const uint64_t key = uint64_t{static_cast<uint32_t>(set)} << 32 | code_point;
  if (const auto it = step_of_.find(key); it != step_of_.end()) return it->second;
  std::vector<int32_t> next;
  for (size_t i = 0; i < sets_[static_cast<size_t>(set)].size() && !exhausted(); i++) {
    const int32_t stack = sets_[static_cast<size_t>(set)][i];
    if (stack == 0) continue;
    const Node node = nodes_[static_cast<size_t>(stack)];
    const auto [matches, after] = Match(node.top, code_point);
    Work(static_cast<uint64_t>(after - node.top));
    if (matches) Expand(IsEnd(after) ? node.below : Push(after, node.below), &next);
  }
  if (exhausted()) return kDead;
  const int32_t result = SetOf(std::move(next));
  step_of_[key] = result;
  if (step_of_.size() > kMaxSteps) exhausted_ = true;
  return result;
}

bool Grammar::Machine::CanEnd(int32_t set) const {
  const auto & stacks = sets_[static_cast<size_t>(set)];
  return !stacks.empty() && stacks.front() == 0;
}

bool Grammar::Machine::CanMatch(int32_t set, uint32_t low, uint32_t high) {
  for (const int32_t stack : sets_[static_cast<size_t>(set)]) {
    if (stack == 0) continue;
    const Element * top = nodes_[static_cast<size_t>(stack)].top;
    bool touched = false;
    bool covered = false;
    const Element * after = ForRanges(top, [&](uint32_t from, uint32_t to) {
      touched = touched || (from <= high && low <= to);
      covered = covered || (from <= low && high <= to);
    });
    Work(static_cast<uint64_t>(after - top));
    if (top->type == LLAMA_GRETYPE_CHAR_NOT ? !covered : touched) return true;
  }
  return false;
}

int32_t Grammar::Machine::Compact(int32_t set) {
  const bool roomy = nodes_.size() < kMaxNodes / 2 && sets_.size() < kMaxSets / 2 && n_in_sets_ < kMaxInSets / 2 &&
                     step_of_.size() < kMaxSteps / 2;
  if (roomy || exhausted()) return set;
  std::vector<std::vector<const Element *>> kept;
  for (const int32_t stack : sets_[static_cast<size_t>(set)]) {
    auto & tops = kept.emplace_back();
    for (int32_t s = stack; s != 0; s = nodes_[static_cast<size_t>(s)].below) {
      tops.push_back(nodes_[static_cast<size_t>(s)].top);
    }
  }
  Clear();
  std::vector<int32_t> stacks;
  for (const auto & tops : kept) {
    int32_t stack = 0;
    for (auto it = tops.rbegin(); it != tops.rend(); ++it) stack = Push(*it, stack);
    stacks.push_back(stack);
  }
  return SetOf(std::move(stacks));
}

}  // namespace meshnet
