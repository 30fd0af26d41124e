// Compiled-in hardware files, the matmul curve, and errors of bad files.
#include "colonnade/cost/hardware.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "colonnade/base/error.h"

namespace colonnade::cost {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string text_of(const std::string& name) {
  for (const HardwareFile& file : hardware_files())
    if (file.name == name) return std::string(file.text);
  return "";
}

std::string complaint(const std::string& yaml) {
  try {
    parse_hardware(yaml, "x.yaml");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), with);
}

TEST(Hardware, FindsFourDevicesByName) {
  EXPECT_THAT(hardware_names(), ::testing::UnorderedElementsAre("a100", "b200", "h100", "h200"));
  for (const std::string& name : hardware_names()) {
    const Hardware h = read_hardware(name);
    EXPECT_EQ(h.devices_per_node, 8) << name;
    EXPECT_GT(h.intra_node.bandwidth, h.inter_node.bandwidth) << name;
    EXPECT_GT(h.usable_bytes(), 70e9) << name;
  }
  EXPECT_EQ(read_hardware("h100").peak_flops, 989.4e12);
  EXPECT_EQ(read_hardware("h200").memory_bandwidth, 4.8e12);
  EXPECT_EQ(read_hardware("a100").peak_flops, 312e12);
  EXPECT_EQ(read_hardware("b200").peak_flops, 2.25e15);
}

TEST(Hardware, NamesTheSourceOfEveryNumber) {
  for (const HardwareFile& file : hardware_files()) {
    std::istringstream lines{std::string(file.text)};
    std::string before;
    for (std::string line; std::getline(lines, line); before = line) {
      if (line.empty() || line[0] == '#' || line.starts_with("name:")) continue;
      EXPECT_TRUE(line.find('#') != std::string::npos || before.starts_with("#"))
          << file.name << ": " << line;
    }
  }
}

TEST(Hardware, InterpolatesTheMatmulCurveLinearlyInLogSize) {
  Hardware h;
  h.matmul_curve = {{1000, 0.4}, {4000, 0.8}};
  EXPECT_DOUBLE_EQ(h.matmul_share(1000, 1000, 1000), 0.4);
  EXPECT_DOUBLE_EQ(h.matmul_share(2000, 2000, 2000), 0.6);
  EXPECT_DOUBLE_EQ(h.matmul_share(9000, 9000, 9000), 0.8);
  EXPECT_DOUBLE_EQ(h.matmul_share(500, 500, 500), 0.2);
  EXPECT_LT(h.matmul_share(4000, 4000, 100), 0.2) << "the smallest side decides";
}

TEST(Hardware, ReportsAllErrorsOfABadFile) {
  const std::string good = text_of("h100");
  EXPECT_EQ(complaint(good), "");
  EXPECT_THAT(complaint(replaced(good, "peak_flops:", "peak_flop:")),
              AllOf(HasSubstr("x.yaml: peak_flops must be given; got nothing"),
                    HasSubstr("x.yaml: peak_flop must be one of the keys of a hardware file")));
  EXPECT_THAT(complaint(replaced(replaced(good, "memory_share: 0.90", "memory_share: 90"),
                                 "reserved_bytes: 6.0e9", "reserved_bytes: much")),
              AllOf(HasSubstr("memory_share must be a number from 0.01 to 1; got 90; correct it"),
                    HasSubstr("reserved_bytes must be a number of at least 0; got much; correct it")));
  EXPECT_THAT(complaint(replaced(good, "products: {256: 0.06, 512: 0.20", "products: {512: 0.06, 256: 0.20")),
              HasSubstr("products must have ascending sizes; got 256 after 512; sort them"));
  EXPECT_THAT(complaint(replaced(good, "latency: 2.0e-6", "delay: 1")),
              HasSubstr("intra_node must be a map of bandwidth, share and latency"));
  EXPECT_THAT(complaint("- 1\n"), HasSubstr("x.yaml must hold `key: value` lines; got a list"));
  EXPECT_THAT(complaint("a: [1\n"), HasSubstr("must be YAML; got an error at column"));
}

TEST(Hardware, RejectsImpossibleValues) {
  const std::string good = text_of("h100");
  EXPECT_EQ(complaint(good + "peak_flops: 1e12\n"),
            "x.yaml: peak_flops must be given once; got it twice; remove one");
  EXPECT_EQ(complaint(replaced(good, "devices_per_node: 8 ", "devices_per_node: 2.7 ")),
            "x.yaml: devices_per_node must be an integer; got 2.7; correct it");
  EXPECT_EQ(complaint(replaced(good, "name: H100 SXM", "name: [1, 2]")),
            "x.yaml: name must be a name that is not empty; got a list or map; write the name of the device");
  EXPECT_THAT(complaint(replaced(good, "name: H100 SXM", "name:")),
              HasSubstr("name must be a name that is not empty; got nothing"));
  EXPECT_EQ(complaint(replaced(good, "reserved_bytes: 6.0e9", "reserved_bytes: 85.5e9")),
            "x.yaml: reserved_bytes must be less than memory_bytes; got 85500000000 of 85500000000; "
            "correct it");
  EXPECT_THAT(complaint(replaced(good, "{bandwidth: 450.0e9,", "{bandwidth: 450.0e9, bandwidth: 1e9,")),
              HasSubstr("intra_node must"));
}

TEST(Hardware, RejectsAnUnknownName) {
  try {
    read_hardware("h1000");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("--hardware must be one of a100, b200, h100, h200, or a YAML file"),
                      HasSubstr("'h1000'")));
  }
}

}  // namespace
}  // namespace colonnade::cost
