// The chapters of the guide on data: their commands, typed one after the other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "program.h"

namespace colonnade::e2e {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

TEST(Guides, FromAFolderOfTextToARun) {
  const TempFolder folder;
  const std::string commands = commands_of_guide("text_data.md");
  for (const char* step : {"tokenizer train", "colonnade preprocess", "data inspect", "pretrain gpt", "--load",
                           "evaluate", "generate", "data audit"})
    ASSERT_THAT(commands, HasSubstr(step));
  const Result result = shell(folder, commands);
  ASSERT_EQ(result.code, 0) << result.text;
  EXPECT_THAT(result.text, HasSubstr("done: 120 documents"));
  EXPECT_THAT(result.text, HasSubstr("the run goes on after iteration 20"));
  EXPECT_THAT(result.text, HasSubstr("runs/texts: 60 steps, 240 samples"));
  EXPECT_THAT(result.text, HasSubstr("all 2 unchanged"));
  const auto lines = metrics(folder / "runs/texts");
  ASSERT_EQ(lines.size(), 60U);
  EXPECT_LT(lines.back().at("lm_loss"), 0.4 * lines.front().at("lm_loss").get<double>());
}

}  // namespace
}  // namespace colonnade::e2e
