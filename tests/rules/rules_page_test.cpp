// Tests of the generated rules page and of the parser of rule examples.
#include "colonnade/rules/rules_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "support/vectors.h"

namespace colonnade::rules {
namespace {

using ::testing::HasSubstr;

TEST(RulesPage, IsUpToDate) {
  const std::string page = colonnade::test::sources() + "/docs/reference/rules.md";
  if (std::getenv("COLONNADE_GOLDEN") != nullptr) write_file_atomically(page, rules_markdown());
  EXPECT_EQ(read_file(page), rules_markdown())
      << "to regenerate: colonnade help --rules > docs/reference/rules.md";
}

TEST(RulesPage, ShowsReasonSettingsAndMessageOfEveryRule) {
  const std::string page = rules_markdown();
  for (const std::string& id : rule_ids()) {
    if (id == "range") continue;
    EXPECT_THAT(page, HasSubstr("\n### " + id + "\n\n")) << id;
  }
  EXPECT_THAT(page,
              HasSubstr("### heads-tensor\n\nTensor parallelism assigns whole attention heads to ranks.\n"
                        "Settings: `--tensor-model-parallel-size`, `--num-attention-heads`.\n\n```\n"
                        "--tensor-model-parallel-size must divide --num-attention-heads; got 8 and 4 "
                        "heads; set --tensor-model-parallel-size 4 [heads-tensor]\n```\n"));
  EXPECT_THAT(page, HasSubstr("Training only: `--global-batch-size`, ")) << "rule `batch`";
  EXPECT_THAT(page, HasSubstr("### train-data\n\nTraining only: ")) << "a rule without a reason";
}

TEST(RulesPage, ParsesExamples) {
  const std::vector<Edit> edits = read_edits("data_path=0.3 a b; world_size=12");
  ASSERT_EQ(edits.size(), 2U);
  config::Run run;
  for (const Edit& edit : edits) apply(run, edit);
  EXPECT_EQ(run.data.data_path, (std::vector<std::string>{"0.3", "a", "b"}));
  EXPECT_EQ(run.parallel.world_size, 12);
  EXPECT_THROW(read_edits("mock_data"), Error);
  const RuleExample example{"batch", run, read_edits("seed=7; world_size=3")};
  EXPECT_EQ(example.broken().given, (std::map<std::string, std::string>{{"seed", "the command line"}}));
  EXPECT_EQ(example.broken().parallel.world_size, 3);
}

}  // namespace
}  // namespace colonnade::rules
