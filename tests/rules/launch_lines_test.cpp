// Launch lines that work with Megatron-LM: the share that `plan` accepts unchanged, and the missing features
// of each other one.
#include "support/launch_lines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "colonnade/base/files.h"
#include "colonnade/config/derive.h"
#include "colonnade/config/parse.h"
#include "colonnade/rules/rules.h"

namespace colonnade::rules {
namespace {

using ::testing::SizeIs;

/// Errors of `plan --model MODEL --world-size 8 ARGS`.
std::vector<std::string> faults_of(const test::LaunchLine& line) {
  std::vector<std::string> words{line.model};
  words.insert(words.end(), line.args.begin(), line.args.end());
  config::Parsed parsed = config::parse_all(words);
  parsed.run.parallel.world_size = line.world(8);
  config::derive(parsed.run);
  for (const Problem& problem : check(parsed.run, Purpose::kPlan)) parsed.faults.push_back(problem.text);
  return parsed.faults;
}

/// Missing features that a rejected line needs; a fault that names no feature is kept in full.
std::set<std::string> features(const std::vector<std::string>& faults) {
  static const std::regex kFeature("this version has no ([^;]*);");
  std::set<std::string> named;
  for (const std::string& fault : faults) {
    std::smatch match;
    named.insert(std::regex_search(fault, match, kFeature) ? match[1].str() : fault);
  }
  return named;
}

/// Missing features of the recorded lines, by name.
std::map<std::string, std::string> recorded() {
  std::map<std::string, std::string> missing;
  std::istringstream in(read_file(test::sources() + "/tests/rules/launch_lines.golden.txt"));
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(": ");
    missing[line.substr(0, colon)] = line.substr(colon + 2);
  }
  return missing;
}

TEST(LaunchLines, RejectedLinesNeedAMissingFeature) {
  const auto lines = test::launch_lines();
  const auto expected = recorded();
  ASSERT_GE(lines.size(), 100U);
  std::size_t accepted = 0;
  std::string seen;
  for (const test::LaunchLine& line : lines) {
    const auto faults = faults_of(line);
    if (faults.empty()) ++accepted;
    const bool bare = line.args.size() == 2;  // another launcher, whose settings are not flags
    const std::string missing = bare ? "any flag" : fmt::format("{}", fmt::join(features(faults), "; "));
    const auto known = expected.find(line.name);
    if (!missing.empty()) seen += line.name + ": " + missing + "\n";
    if (known != expected.end()) {
      EXPECT_EQ(missing, known->second) << line.name;
    }
  }
  EXPECT_GE(accepted * 143, 115 * lines.size()) << seen;
  if (std::getenv("COLONNADE_VECTORS") == nullptr) {
    EXPECT_THAT(expected, SizeIs(lines.size() - accepted)) << seen;
  }
}

}  // namespace
}  // namespace colonnade::rules
