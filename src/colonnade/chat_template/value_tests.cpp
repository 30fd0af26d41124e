// See library.h: Jinja's tests.
#include <map>

#include "colonnade/chat_template/library.h"

namespace colonnade::chat_template {
namespace {

using Test = bool (*)(const Value&, Arguments&);

template <const char* kOp>
bool compared(const Value& value, Arguments& a) {
  return compare(kOp, value, a.require(0, ""), a.budget);
}
constexpr char kEqual[] = "==", kUnequal[] = "!=", kLess[] = "<", kAtMost[] = "<=", kMore[] = ">",
               kAtLeast[] = ">=", kIn[] = "in";

bool has_remainder(const Value& value, std::int64_t by, std::int64_t wanted, Arguments& a) {
  return compare("==", binary("%", value, Value::integer(by), a.budget), Value::integer(wanted), a.budget);
}

/// The test sameas for true, false and none, whose identity is their value.
bool same_as(const Value& value, Arguments& a) {
  const Value& other = a.require(0, "other");
  if (other.is_none()) return value.is_none();
  const bool* truth = other.as<bool>();
  if (truth == nullptr)
    a.budget.fail("the test 'sameas' is supported only for true, false and none", other.kind(), "use ==");
  return value.as<bool>() != nullptr && *value.as<bool>() == *truth;
}

bool is_sequence(const Value& value) {
  return value.text() != nullptr || value.mapping() != nullptr ||
         (value.list() != nullptr && value.list()->is_indexable()) || value.is_undefined();
}

const std::map<std::string_view, Test>& all_tests() {
  static const std::map<std::string_view, Test> kAll = {
      {"defined", [](const Value& v, Arguments&) { return !v.is_undefined(); }},
      {"undefined", [](const Value& v, Arguments&) { return v.is_undefined(); }},
      {"none", [](const Value& v, Arguments&) { return v.is_none(); }},
      {"string", [](const Value& v, Arguments&) { return v.text() != nullptr; }},
      {"mapping", [](const Value& v, Arguments&) { return v.mapping() != nullptr; }},
      {"sequence", [](const Value& v, Arguments&) { return is_sequence(v); }},
      {"iterable", [](const Value& v, Arguments&) { return is_sequence(v) || v.list() != nullptr; }},
      {"number", [](const Value& v, Arguments&) { return v.is_number(); }},
      {"integer", [](const Value& v, Arguments&) { return v.as<std::int64_t>() != nullptr; }},
      {"float", [](const Value& v, Arguments&) { return v.as<double>() != nullptr; }},
      {"boolean", [](const Value& v, Arguments&) { return v.as<bool>() != nullptr; }},
      {"true", [](const Value& v, Arguments&) { return v.as<bool>() != nullptr && v.is_truthy(); }},
      {"false", [](const Value& v, Arguments&) { return v.as<bool>() != nullptr && !v.is_truthy(); }},
      {"odd", [](const Value& v, Arguments& a) { return has_remainder(v, 2, 1, a); }},
      {"even", [](const Value& v, Arguments& a) { return has_remainder(v, 2, 0, a); }},
      {"divisibleby",
       [](const Value& v, Arguments& a) { return has_remainder(v, a.integer(0, "num", 0), 0, a); }},
      {"eq", compared<kEqual>},
      {"equalto", compared<kEqual>},
      {"==", compared<kEqual>},
      {"ne", compared<kUnequal>},
      {"!=", compared<kUnequal>},
      {"lt", compared<kLess>},
      {"lessthan", compared<kLess>},
      {"<", compared<kLess>},
      {"le", compared<kAtMost>},
      {"<=", compared<kAtMost>},
      {"gt", compared<kMore>},
      {"greaterthan", compared<kMore>},
      {">", compared<kMore>},
      {"ge", compared<kAtLeast>},
      {">=", compared<kAtLeast>},
      {"in", compared<kIn>},
      {"escaped", [](const Value& v, Arguments&) { return v.is_safe(); }},
      {"sameas", same_as},
  };
  return kAll;
}

}  // namespace

bool test(std::string_view name, const Value& value, Arguments& arguments) {
  const auto found = all_tests().find(name);
  if (found == all_tests().end())
    arguments.budget.fail(fmt::format("the test '{}' is not supported", name), "it",
                          "write the template without it");
  const bool result = found->second(value, arguments);
  arguments.check_all_read();
  return result;
}

}  // namespace colonnade::chat_template
