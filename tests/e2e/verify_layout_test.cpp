// `verify-layout` on files: layouts that agree, layouts that differ and why, and faults of the files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <sstream>

#include "program.h"

namespace colonnade::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kSmallRun =
    "num_layers: 2\nhidden_size: 32\nnum_attention_heads: 4\nvocab_size: 61\nseq_length: 16\n"
    "max_position_embeddings: 16\nmicro_batch_size: 1\nglobal_batch_size: 4\ntokenizer_type: NullTokenizer\n"
    "mock_data: true\ntrain_iters: 4\nlr: 0.001\n";

Result verify(const std::string& line) {
  std::istringstream words(line);
  return run(colonnade(Words{"verify-layout"} + Words{std::istream_iterator<std::string>(words), {}}));
}

TEST(VerifyLayout, ComparesTwoFiles) {
  const TempFolder temporary;
  const std::string folder = temporary.path();
  std::ofstream(folder + "/a.yaml") << kSmallRun;
  std::ofstream(folder + "/b.yaml") << kSmallRun
                                    << "tensor_model_parallel_size: 2\nsequence_parallel: true\n";
  std::ofstream(folder + "/c.yaml") << kSmallRun << "seed: 7\n";
  const std::string a = folder + "/a.yaml ", b = folder + "/b.yaml";
  const Result same = verify(a + b + " --world-sizes 1 4 --steps 2 --json " + folder + "/found.json");
  ASSERT_EQ(same.code, 0) << same.text;
  EXPECT_THAT(same.text,
              AllOf(HasSubstr("the layouts agree over 2 steps"), HasSubstr("largest difference: step")));
  std::ifstream json(folder + "/found.json");
  EXPECT_THAT((std::string{std::istreambuf_iterator<char>(json), {}}), HasSubstr("\"agree\": true"));
  const Result other = verify(a + folder + "/c.yaml");
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.text, HasSubstr("--seed (1234 and 7)"));
  EXPECT_EQ(verify(a).code, 2);
}

TEST(VerifyLayout, ComparesABert) {
  const TempFolder temporary;
  const std::string a = temporary / "a.yaml", b = temporary / "b.yaml";
  std::ofstream(a) << kSmallRun;
  std::ofstream(b) << kSmallRun
                   << "tensor_model_parallel_size: 2\nsequence_parallel: true\n"
                      "pipeline_model_parallel_size: 2\n";
  for (const char* more : {"", " --bert-no-binary-head --apply-residual-connection-post-layernorm"}) {
    const Result result = verify(a + ' ' + b + " --model bert --steps 2" + more);
    ASSERT_EQ(result.code, 0) << result.text;
    EXPECT_THAT(result.text, HasSubstr("the layouts agree over 2 steps"));
    EXPECT_EQ(result.text.find("sop_loss") != std::string::npos, *more == '\0') << result.text;
  }
}

TEST(VerifyLayout, ReportsTheFaultsOfBothFiles) {
  const TempFolder temporary;
  const std::string folder = temporary.path();
  const std::string a = folder + "/a.yaml", b = folder + "/b.yaml", both = a + ' ' + b;
  std::ofstream(a) << kSmallRun << "pipeline_model_parallel_size: 3\n";
  std::ofstream(b) << kSmallRun << "tensor_model_parallel_size: 3\n";
  const Result apart = verify(both);
  EXPECT_EQ(apart.code, 2);
  EXPECT_THAT(apart.text, AllOf(HasSubstr(a + ": "), HasSubstr(b + ": ")));
  const Result alike = verify(both + " --steps 0");
  EXPECT_THAT(alike.text, AllOf(HasSubstr(a + ": "), HasSubstr(b + ": "), HasSubstr("--steps must be")));
  std::ofstream(a) << kSmallRun;
  const Result second = verify(both);
  EXPECT_EQ(second.code, 2);
  EXPECT_THAT(second.text, AllOf(Not(HasSubstr(a)), HasSubstr(b + ": ")));
  std::ofstream(b) << kSmallRun;
  const Result device = verify(both + " --device cuda");
  EXPECT_EQ(device.code, 2);
  EXPECT_THAT(device.text, HasSubstr("--device must be cpu: verify-layout runs ranks as threads on the"));
  const Result once = verify(both + " --steps 0");
  EXPECT_EQ(once.code, 2);
  EXPECT_THAT(once.text, AllOf(HasSubstr("error: --steps must be at least 1"), Not(HasSubstr(b))));
}

TEST(VerifyLayout, WaitsForTheLossScaleAndReportsSkippedSteps) {
  const TempFolder temporary;
  const std::string folder = temporary.path();
  const std::string a = folder + "/a.yaml", b = folder + "/b.yaml", both = a + ' ' + b;
  std::ofstream(a) << kSmallRun;
  std::ofstream(b) << kSmallRun << "tensor_model_parallel_size: 2\n";
  const Result falls = verify(both + " --fp16 --steps 1");
  EXPECT_EQ(falls.code, 0) << falls.text;
  EXPECT_THAT(falls.text, AllOf(HasSubstr("skipped by both, since gradients were not finite: "),
                                HasSubstr("gradient of"), HasSubstr("the layouts agree over 1 step\n")));
  const Result stays =
      verify(both + " --fp16 --loss-scale 1e30 --no-check-for-nan-in-loss-and-grad --steps 2 --json " +
             folder + "/found.json");
  EXPECT_EQ(stays.code, 1);
  EXPECT_THAT(stays.text, AllOf(HasSubstr("only losses were compared"), Not(HasSubstr("agree"))));
  std::ifstream json(folder + "/found.json");
  EXPECT_THAT((std::string{std::istreambuf_iterator<char>(json), {}}),
              AllOf(HasSubstr("\"agree\": false"), HasSubstr("\"skipped\": 2")));
}

TEST(VerifyLayout, EndsWithOneWhereLayoutsDifferAndReportsWhy) {
  const TempFolder temporary;
  const std::string folder = temporary.path();
  const std::string experts = std::string(kSmallRun) +
                              "num_experts: 4\nmoe_router_topk: 2\nmoe_expert_capacity_factor: 1.0\n"
                              "moe_router_load_balancing_type: none\n";
  std::ofstream(folder + "/a.yaml") << experts;
  std::ofstream(folder + "/b.yaml") << experts << "tensor_model_parallel_size: 2\nsequence_parallel: true\n";
  const Result apart =
      verify(folder + "/a.yaml " + folder + "/b.yaml --steps 1 --json " + folder + "/found.json");
  EXPECT_EQ(apart.code, 1) << apart.text;
  EXPECT_THAT(apart.text, AllOf(HasSubstr("note: --moe-expert-capacity-factor counts the tokens"),
                                HasSubstr("first value beyond its tolerance: step 1, lm_loss: difference "),
                                HasSubstr("this need not be a defect"),
                                HasSubstr("the layouts differ in float64 too, first at step 1, lm_loss"),
                                Not(HasSubstr("this is a defect"))));
  std::ifstream json(folder + "/found.json");
  EXPECT_THAT((std::string{std::istreambuf_iterator<char>(json), {}}),
              AllOf(HasSubstr("\"agree\": false"), HasSubstr("\"verdict\": \"by definition\"")));
}

}  // namespace
}  // namespace colonnade::e2e
