// LibTorch errors reach the user as project errors.
#include "colonnade/tensor/torch_errors.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "colonnade/base/error.h"

namespace colonnade::tensor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Message of the error that `body` throws.
std::string error_of(const std::function<int()>& body) {
  try {
    translate_torch_errors(body);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

TEST(TorchErrors, AskForAReportAndOmitTheStackTrace) {
  EXPECT_THAT(error_of([]() -> int {
                at::zeros({4}).narrow(0, 2, 4);
                return 0;
              }),
              AllOf(HasSubstr("calls of LibTorch must succeed; got "),
                    HasSubstr("exceeds dimension size (4)"), HasSubstr("please report it"),
                    Not(HasSubstr("Exception raised from")), Not(HasSubstr("frame #"))));
}

TEST(TorchErrors, OfMemoryPointToThePlan) {
  for (const auto& body : {std::function<int()>([]() -> int {
                             // Like LibTorch's CPU allocator, which a counting one may replace here.
                             TORCH_CHECK(false, "DefaultCPUAllocator: can't allocate memory");
                             return 0;
                           }),
                           std::function<int()>([]() -> int { throw c10::OutOfMemoryError({}, "no more"); })})
    EXPECT_THAT(error_of(body), AllOf(HasSubstr("memory must be sufficient; got "),
                                      HasSubstr("colonnade plan"), Not(HasSubstr("frame #"))));
}

TEST(TorchErrors, OfTheProjectAndResultsPass) {
  EXPECT_EQ(translate_torch_errors([] { return 7; }), 7);
  EXPECT_THROW(translate_torch_errors([]() -> int { throw ConfigError("a"); }), ConfigError);
}

}  // namespace
}  // namespace colonnade::tensor
