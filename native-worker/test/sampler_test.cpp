#include "sampler.h"

#include <gtest/gtest.h>
#include <llama.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "engine_ring.h"
#include "lane_turn.h"
#include "sampler_budget.h"
#include "sampler_grammar.h"
#include "vocabulary_suite.h"

namespace meshnet {
namespace {

// Goes on by a step whenever somebody looks.
uint64_t g_clock_us = 0;
uint64_t g_clock_step_us = 0;
uint64_t SteppingClock() { return g_clock_us += g_clock_step_us; }

class SamplerTest : public VocabularySuite {
 protected:
  static std::unique_ptr<Sampler> Make(const seam::v1::Turn & turn) {
    std::unique_ptr<Sampler> sampler;
    const Status status = Sampler::Create(turn, 100, pieces_.get(), &sampler);
    EXPECT_TRUE(status.ok()) << status.message();
    return sampler;
  }
  static int32_t Draw(Sampler & sampler, const std::vector<float> & logits, uint32_t pos) {
    Drawn drawn;
    const Status status = sampler.Draw(logits, pos, &drawn);
    EXPECT_TRUE(status.ok()) << status.message();
    return drawn.token;
  }
  static std::string Piece(int32_t token) {
    char text[64];
    const int n = llama_token_to_piece(shard_->vocab(), token, text, sizeof text, 0, false);
    return {text, static_cast<size_t>(std::max(0, n))};
  }
  static Code CreateCode(const std::string & grammar) {
    auto turn = MakeTurn(1, 0, 1, 10);
    turn.set_grammar(grammar);
    std::unique_ptr<Sampler> sampler;
    return Sampler::Create(turn, 100, pieces_.get(), &sampler).code();
  }
};

TEST_F(SamplerTest, TakesTheLargestLogitAtTemperatureZero) {
  auto sampler = Make(MakeTurn(1, 0, 1, 10));
  auto logits = Logits(1);
  logits[777] = logits[888] = 50;
  EXPECT_EQ(Draw(*sampler, logits, 3), 777);
}

TEST_F(SamplerTest, DrawsByPositionAndSeedAlone) {
  auto turn = MakeTurn(1, 0, 1, 10);
  turn.mutable_sampling()->set_temperature(1);
  turn.mutable_sampling()->set_seed(5);
  turn.mutable_sampling()->set_top_k(200);
  turn.mutable_sampling()->set_top_p(0.98F);
  turn.mutable_sampling()->set_min_p(0.001F);
  const auto logits = Logits(1);
  auto a = Make(turn);
  auto b = Make(turn);
  std::set<int32_t> different;
  std::vector<int32_t> forth;
  for (uint32_t pos = 0; pos < 20; pos++) forth.push_back(Draw(*a, logits, pos));
  for (uint32_t pos = 20; pos-- > 0;) EXPECT_EQ(Draw(*b, logits, pos), forth[pos]);
  different.insert(forth.begin(), forth.end());
  EXPECT_GT(different.size(), 10U);
  turn.mutable_sampling()->set_seed(6);
  auto c = Make(turn);
  size_t equal = 0;
  for (uint32_t pos = 0; pos < 20; pos++) equal += Draw(*c, logits, pos) == forth[pos] ? 1 : 0;
  EXPECT_LT(equal, 10U);
}

TEST_F(SamplerTest, AppliesBiasAndPenaltiesOfThisTurn) {
  auto turn = MakeTurn(1, 0, 1, 10);
  auto * bias = turn.mutable_sampling()->add_logit_bias();
  bias->set_token(99);
  bias->set_bias(100);
  auto logits = Logits(1);
  EXPECT_EQ(Draw(*Make(turn), logits, 0), 99);

  turn = MakeTurn(1, 0, 1, 10);
  turn.mutable_sampling()->set_presence_penalty(1.5F);
  logits[10] = 21;
  logits[11] = 20;
  auto sampler = Make(turn);
  EXPECT_EQ(Draw(*sampler, logits, 0), 10);
  EXPECT_EQ(Draw(*sampler, logits, 1), 11);
}

TEST_F(SamplerTest, HoldsToTheGrammar) {
  auto turn = MakeTurn(1, 0, 1, 20);
  turn.set_grammar("root ::= \"yes \" [0-9]+ \"!\"");
  turn.mutable_sampling()->set_temperature(1);
  auto sampler = Make(turn);
  std::string text;
  for (uint32_t pos = 0; pos < 100; pos++) {
    Drawn drawn;
    ASSERT_TRUE(sampler->Draw(Logits(pos), pos, &drawn).ok());
    if (drawn.end_of_generation) break;
    text += Piece(drawn.token);
  }
  EXPECT_EQ(text.rfind("yes ", 0), 0U) << text;
  EXPECT_EQ(text.find_first_not_of("0123456789", 4), text.size() - 1) << text;
  EXPECT_EQ(text.back(), '!');
}

TEST_F(SamplerTest, RefusesBadGrammars) {
  EXPECT_EQ(CreateCode("# one letter\n\nroot ::= \"a\""), Code::kOk);
  EXPECT_EQ(CreateCode("root ::= ("), Code::kGrammarInvalid);
  EXPECT_EQ(CreateCode("other ::= \"a\""), Code::kGrammarInvalid);
  EXPECT_EQ(CreateCode("root ::= root \"a\""), Code::kGrammarInvalid);
  EXPECT_EQ(CreateCode("root ::= missing"), Code::kGrammarInvalid);
  EXPECT_EQ(CreateCode("root ::= \"a\" missing"), Code::kGrammarInvalid);
  EXPECT_EQ(CreateCode("root ::= \"\\x\""), Code::kGrammarInvalid);
  EXPECT_EQ(CreateCode("root ::= [a"), Code::kGrammarInvalid);
  EXPECT_EQ(CreateCode("\xff\xfe\x01"), Code::kGrammarInvalid);
  EXPECT_EQ(CreateCode("root ::= " + std::string(60000, '(')), Code::kGrammarInvalid);
  EXPECT_EQ(CreateCode("root ::= \"a\"{0,999999999}"), Code::kGrammarInvalid);
  std::string many = "root ::= \"a\"\n";
  for (int i = 0; i < 3000; i++) many += "r" + std::to_string(i) + " ::= \"a\"{0,1900}\n";
  EXPECT_EQ(CreateCode(many.substr(0, 60000)), Code::kGrammarInvalid);
}

TEST_F(SamplerTest, RefusesAGrammarWhoseStatesMultiply) {
  std::string doubling = "root ::= r0\n";
  for (int i = 0; i < 40; i++) {
    const std::string next = "r" + std::to_string(i + 1);
    doubling += "r" + std::to_string(i) + " ::= " + next + " \"a\" | " + next + " \"b\"\n";
  }
  doubling += "r40 ::= \"c\"\n";
  EXPECT_EQ(CreateCode(doubling), Code::kGrammarInvalid);
}

// Each level matches the same text in two ways: 2^40 stacks for a matcher that keeps them apart.
TEST_F(SamplerTest, ARightNestedAmbiguityCostsNoMoreThanItsLimits) {
  std::string chain = "root ::= s0\n";
  for (int i = 0; i < 40; i++) {
    const std::string next = " s" + std::to_string(i + 1);
    chain += "s" + std::to_string(i) + " ::= \"=\"" + next + " \"b\" | \"=\"" + next + " \"c\"\n";
  }
  chain += "s40 ::= \"d\"\n";
  auto turn = MakeTurn(1, 0, 1, 60);
  turn.set_grammar(chain);
  auto sampler = Make(turn);
  Status status;
  Drawn drawn;
  for (uint32_t pos = 0; pos < 45 && status.ok(); pos++) status = sampler->Draw(Logits(pos), pos, &drawn);
  EXPECT_EQ(status.code(), Code::kGrammarInvalid);
}

TEST_F(SamplerTest, AllowsWhatLlamaAllows) {
  const std::vector<std::string> grammars = {
      "root ::= \"yes\" | \"no\" | \"maybe \" [a-z]{2,5} \".\"?",
      "root ::= [^\"\\n]* \"\\\"\"",
      "root ::= object\nobject ::= \"{\" ws (pair (\",\" ws pair)*)? \"}\" ws\npair ::= string \":\" ws value\n"
      "value ::= object | string | number | \"[\" ws (value (\",\" ws value)*)? \"]\" ws\n"
      "string ::= \"\\\"\" ([^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" [\"\\\\bfnrt])* \"\\\"\" ws\n"
      "number ::= \"-\"? [0-9]{1,15} (\".\" [0-9]+)? ws\nws ::= | \" \" | \"\\n\" [ \\t]{0,20}",
      "root ::= (\"\u00e9\" | [\u4e00-\u9fff])+ .",
  };
  for (const std::string & text : grammars) {
    SCOPED_TRACE(text);
    std::unique_ptr<Grammar> ours;
    // Looking at every token, one by one, takes longer than a turn may.
    const auto still = [] { return uint64_t{0}; };
    ASSERT_TRUE(Grammar::Create(text, pieces_.get(), &ours, still).ok());
    llama_sampler * theirs = llama_sampler_init_grammar(shard_->vocab(), text.c_str(), "root");
    ASSERT_NE(theirs, nullptr);
    std::mt19937 random(7);
    for (int step = 0; step < 25; step++) {
      std::vector<bool> allowed;
      ASSERT_TRUE(ours->Allowed(&allowed).ok());
      std::vector<llama_token_data> data;
      for (int32_t id = 0; id < n_vocab(); id++) data.push_back({id, 1, 0});
      llama_token_data_array array{data.data(), data.size(), -1, false};
      llama_sampler_apply(theirs, &array);
      std::vector<int32_t> choices;
      for (int32_t id = 0; id < n_vocab(); id++) {
        const bool eog = llama_vocab_is_eog(shard_->vocab(), id);
        // Control tokens are no text to us; llama.cpp would let a grammar spell their names.
        if (!eog && pieces_->of(id).empty()) continue;
        // Single bytes: llama.cpp is lenient about UTF-8 that is none.
        if (pieces_->of(id).size() == 1 && static_cast<unsigned char>(pieces_->of(id)[0]) >= 0x80) continue;
        const auto i = static_cast<size_t>(id);
        ASSERT_EQ(allowed[i], !std::isinf(data[i].logit))
            << "step " << step << " token " << id << " '" << Piece(id) << "'";
        bool fits = false;
        if (allowed[i] || id % 97 == 0) {
          ASSERT_TRUE(ours->Fits(id, &fits).ok());
          ASSERT_EQ(fits, allowed[i]);
        }
        if (allowed[i] && !eog) choices.push_back(id);
      }
      if (choices.empty()) break;
      const int32_t token = choices[random() % choices.size()];
      ASSERT_TRUE(ours->Accept(token).ok());
      llama_sampler_accept(theirs, token);
    }
    llama_sampler_free(theirs);
  }
}

TEST_F(SamplerTest, SpellsACharacterByItsBytes) {
  std::unique_ptr<Grammar> grammar;
  ASSERT_TRUE(Grammar::Create("root ::= \"\u00e9\"", pieces_.get(), &grammar).ok());
  const auto fits = [&](unsigned char byte) {
    bool yes = false;
    EXPECT_TRUE(grammar->Fits(3 + byte, &yes).ok());  // this vocabulary's byte tokens
    return yes;
  };
  EXPECT_TRUE(fits(0xC3));
  for (const int other : {0x80, 0xC0, 0xC4, 0xE0, 0xF0, 0xF5, 0xFF})
    EXPECT_FALSE(fits(static_cast<unsigned char>(other)));
  ASSERT_TRUE(grammar->Accept(3 + 0xC3).ok());
  EXPECT_TRUE(fits(0xA9));
  EXPECT_FALSE(fits(0xA8));
  EXPECT_FALSE(fits(0xC3));
  bool end = true;
  ASSERT_TRUE(grammar->Fits(llama_vocab_eos(shard_->vocab()), &end).ok());
  EXPECT_FALSE(end);
  ASSERT_TRUE(grammar->Accept(3 + 0xA9).ok());
  ASSERT_TRUE(grammar->Fits(llama_vocab_eos(shard_->vocab()), &end).ok());
  EXPECT_TRUE(end);
}

TEST_F(SamplerTest, EndsAGrammarThatTakesTooLong) {
  constexpr int32_t kToken = 3 + 'a';  // this vocabulary's byte token
  g_clock_step_us = 1000;
  std::unique_ptr<Grammar> grammar;
  ASSERT_TRUE(Grammar::Create("root ::= [a-z]+", pieces_.get(), &grammar, SteppingClock).ok());
  const auto go_on = [&] {
    bool fits = false;
    if (Status s = grammar->Fits(kToken, &fits); !s.ok()) return s.code();
    EXPECT_TRUE(fits);
    return grammar->Accept(kToken).code();
  };
  // 2 ms a token: as long as it likes.
  for (int i = 0; i < 1000; i++) ASSERT_EQ(go_on(), Code::kOk);
  // 60 ms a token: until what was given at first is used up.
  g_clock_step_us = 30'000;
  int n = 0;
  Code code = Code::kOk;
  for (; n < 100 && code == Code::kOk; n++) code = go_on();
  EXPECT_EQ(code, Code::kGrammarInvalid);
  EXPECT_GT(n, 3);
  EXPECT_LT(n, 8);
  EXPECT_EQ(go_on(), Code::kGrammarInvalid);
}

TEST(GrammarBudget, LooksAtTheClockWhileALongPieceOfWorkGoesOn) {
  g_clock_step_us = 100'000;
  GrammarBudget budget(SteppingClock);
  budget.Begin();
  for (int i = 0; i < 100; i++) budget.Spend(1);
  EXPECT_FALSE(budget.exhausted());
  for (int i = 0; i < 3; i++) budget.Spend(1'000'000);
  EXPECT_TRUE(budget.exhausted());
  budget.Refill();  // too late
  EXPECT_TRUE(budget.exhausted());
}

TEST_F(SamplerTest, RefusesLogitsThatAreNotFinite) {
  auto sampler = Make(MakeTurn(1, 0, 1, 10));
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    auto logits = Logits(1);
    logits[500] = bad;
    Drawn drawn;
    EXPECT_EQ(sampler->Draw(logits, 0, &drawn).code(), Code::kValueInvalid);
  }
}

TEST_F(SamplerTest, GivesLogprobsOfTheRawLogits) {
  auto turn = MakeTurn(1, 0, 1, 10);
  turn.set_logprobs(3);
  auto sampler = Make(turn);
  const auto logits = Logits(4);
  Drawn drawn;
  ASSERT_TRUE(sampler->Draw(logits, 0, &drawn).ok());
  ASSERT_TRUE(drawn.logprobs);
  ASSERT_EQ(drawn.logprobs->top_ids_size(), 3);
  EXPECT_EQ(drawn.logprobs->top_ids(0), drawn.token);
  EXPECT_EQ(drawn.logprobs->top_logprobs(0), drawn.logprobs->logprob());
  EXPECT_GE(drawn.logprobs->top_logprobs(0), drawn.logprobs->top_logprobs(1));
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  EXPECT_NEAR(drawn.logprobs->logprob(), logits[static_cast<size_t>(drawn.token)] - std::log(sum), 1e-4);
}

TEST(CheckTurn, RefusesParametersOutOfRange) {
  const auto code = [](const std::function<void(seam::v1::Turn &)> & change) {
    auto turn = MakeTurn(1, 0, 1, 10);
    change(turn);
    return CheckTurn(turn, 100).code();
  };
  EXPECT_EQ(code([](auto &) {}), Code::kOk);
  EXPECT_EQ(code([](auto & t) { t.mutable_sampling()->set_temperature(-1); }), Code::kTurnInvalid);
  EXPECT_EQ(code([](auto & t) { t.mutable_sampling()->set_top_p(1.1F); }), Code::kTurnInvalid);
  EXPECT_EQ(code([](auto & t) { t.mutable_sampling()->set_min_p(std::nanf("")); }), Code::kTurnInvalid);
  EXPECT_EQ(code([](auto & t) { t.mutable_sampling()->set_presence_penalty(3); }), Code::kTurnInvalid);
  EXPECT_EQ(code([](auto & t) { t.set_logprobs(21); }), Code::kTurnInvalid);
  EXPECT_EQ(code([](auto & t) { t.set_max_tokens(0); }), Code::kTurnInvalid);
  EXPECT_EQ(code([](auto & t) { t.set_grammar(std::string(70000, ' ')); }), Code::kGrammarInvalid);
  EXPECT_EQ(code([](auto & t) { t.mutable_sampling()->add_logit_bias()->set_token(100); }), Code::kTokenInvalid);
}

}  // namespace
}  // namespace meshnet
