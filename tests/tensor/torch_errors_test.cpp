// Errors of LibTorch reach the user as ours do.
#include "colonnade/tensor/torch_errors.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "colonnade/base/error.h"

namespace colonnade::tensor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// What an error of `body` says.
std::string told(const std::function<int()>& body) {
  try {
    retell_torch_errors(body);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

TEST(TorchErrors, AskToBeReportedAndHaveNoFrames) {
  EXPECT_THAT(
      told([]() -> int {
        at::zeros({4}).narrow(0, 2, 4);
        return 0;
      }),
      AllOf(HasSubstr("LibTorch: "), HasSubstr("exceeds dimension size (4)"), HasSubstr("please report it"),
            Not(HasSubstr("Exception raised from")), Not(HasSubstr("frame #"))));
}

TEST(TorchErrors, OfMemorySayWhatARunNeeds) {
  for (const auto& body : {std::function<int()>([]() -> int {
                             // As LibTorch's allocator of the CPU, in whose place a counting one may stand.
                             TORCH_CHECK(false, "DefaultCPUAllocator: can't allocate memory");
                             return 0;
                           }),
                           std::function<int()>([]() -> int { throw c10::OutOfMemoryError({}, "no more"); })})
    EXPECT_THAT(told(body), AllOf(HasSubstr("memory: there is not enough"), HasSubstr("colonnade plan"),
                                  Not(HasSubstr("frame #"))));
}

TEST(TorchErrors, OfOursAndResultsPass) {
  EXPECT_EQ(retell_torch_errors([] { return 7; }), 7);
  EXPECT_THROW(retell_torch_errors([]() -> int { throw ConfigError("a"); }), ConfigError);
}

}  // namespace
}  // namespace colonnade::tensor
