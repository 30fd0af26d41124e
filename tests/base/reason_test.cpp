// Library messages: the error is kept, source locations are removed.
#include "colonnade/base/reason.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "colonnade/base/error.h"

namespace colonnade {
namespace {

TEST(Reason, RemovesSourceLocationsAndExceptionNames) {
  EXPECT_EQ(reason_in("Internal: src/model_interface.cc(123) [!sp.piece().empty()] piece must not be empty."),
            "piece must not be empty");
  EXPECT_EQ(reason_in("Internal: /a/b-c/trainer.cc(40) [(x) > (0)] ", "a damaged file"), "a damaged file");
  EXPECT_EQ(reason_in("../c10/core/Alloc.cpp:83: not enough memory\nException raised from f\nframe #0: 0x1"),
            "not enough memory");
  EXPECT_EQ(reason_in("[json.exception.type_error.302] type must be string, but is number"),
            "type must be string, but is number");
}

TEST(Reason, LeavesOtherTextUnchanged) {
  for (const char* text :
       {"tokenizer.json: 'a.cc' must be text; got 3.5 [json]", "1.5 of 2.h0", "v1.2.3 (4)", "x"})
    EXPECT_EQ(reason_in(text), text);
  EXPECT_EQ(reason_of(DataError("src/a.cc(3) [x] y.")), "src/a.cc(3) [x] y.") << "our own";
}

TEST(Reason, KeepsLineAndKeyOfJsonErrors) {
  const auto reason = [](const auto& body) {
    try {
      body();
    } catch (const std::exception& error) {
      return reason_of(error);
    }
    return std::string();
  };
  EXPECT_EQ(reason([] {
              return nlohmann::json::parse("{\n \"a\": }").size();
            }).find("parse error at line 2, column 7: "),
            0U);
  EXPECT_EQ(reason([] { (void)nlohmann::json{{"a", 1}}.at("step"); }), "key 'step' not found");
}

}  // namespace
}  // namespace colonnade
