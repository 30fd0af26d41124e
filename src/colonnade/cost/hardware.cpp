// Reads hardware files and checks keys and ranges.
#include "colonnade/cost/hardware.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <cmath>
#include <limits>
#include <set>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"

namespace colonnade::cost {
namespace {

constexpr double kAny = std::numeric_limits<double>::max();

class Reader {
 public:
  Reader(const YAML::Node& root, std::string source) : root_(root), source_(std::move(source)) {}

  Hardware read() {
    Hardware h;
    h.name = text("name");
    h.devices_per_node = integer("devices_per_node", 1024);
    h.memory_bytes = number("memory_bytes", 1, kAny);
    h.reserved_bytes = number("reserved_bytes", 0, kAny);
    if (errors_.empty() && h.reserved_bytes >= h.memory_bytes)
      error("reserved_bytes", "must be less than memory_bytes",
            fmt::format("{} of {}", h.reserved_bytes, h.memory_bytes), "correct it");
    h.memory_bandwidth = number("memory_bandwidth", 1, kAny);
    h.memory_share = share("memory_share");
    h.peak_flops = number("peak_flops", 1, kAny);
    h.matmul_curve = curve("products");
    h.fp32_flops = number("fp32_flops", 1, kAny);
    h.sustained_share = share("sustained_share");
    h.attention_forward = share("attention_forward");
    h.attention_backward = share("attention_backward");
    h.kernel_seconds = number("kernel_seconds", 0, 1);
    h.step_seconds = number("step_seconds", 0, 1);
    h.overlap_cost = number("overlap_cost", 0, 1);
    h.intra_node = link("intra_node");
    h.inter_node = link("inter_node");
    std::set<std::string> given;
    for (const auto& entry : root_) {
      const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "?";
      if (!given.insert(key).second) {
        error(key, "must be given once", "it twice", "remove one");
      } else if (!known_.contains(key))
        error(key, "must be one of the keys of a hardware file", key,
              fmt::format("remove it; keys: {}", fmt::join(known_, ", ")));
    }
    if (!errors_.empty()) throw ConfigError(fmt::format("{}", fmt::join(errors_, "\n")));
    return h;
  }

 private:
  void error(const std::string& key, const std::string& rule, const std::string& got,
             const std::string& fix) {
    errors_.push_back(fmt::format("{}: {} {}; got {}; {}", source_, key, rule, got, fix));
  }

  YAML::Node node_of(const std::string& key) {
    known_.insert(key);
    const YAML::Node node = root_[key];
    if (!node) error(key, "must be given", "nothing", "see hardware/h100.yaml");
    return node;
  }

  double value(const YAML::Node& node, const std::string& key, double low, double high) {
    double number = 0;
    if (node.IsScalar() && YAML::convert<double>::decode(node, number) && std::isfinite(number) &&
        number >= low && number <= high)
      return number;
    const std::string range = high == kAny ? fmt::format("a number of at least {}", low)
                                           : fmt::format("a number from {} to {}", low, high);
    error(key, "must be " + range, node.IsScalar() ? node.Scalar() : "a list or map", "correct it");
    return low;
  }

  std::string text(const std::string& key) {
    const YAML::Node node = node_of(key);
    if (!node || (node.IsScalar() && !node.Scalar().empty())) return node ? node.Scalar() : "";
    error(key, "must be a name that is not empty",
          node.IsScalar() || node.IsNull() ? "nothing" : "a list or map", "write the name of the device");
    return "";
  }

  int integer(const std::string& key, int high) {
    const double number = this->number(key, 1, high);
    if (number != std::floor(number))
      error(key, "must be an integer", fmt::format("{}", number), "correct it");
    return static_cast<int>(number);
  }

  double number(const std::string& key, double low, double high) {
    const YAML::Node node = node_of(key);
    return node ? value(node, key, low, high) : low;
  }
  double share(const std::string& key) { return number(key, 0.01, 1); }

  std::vector<MatmulPoint> curve(const std::string& key) {
    const YAML::Node node = node_of(key);
    std::vector<MatmulPoint> points;
    if (!node) return points;
    if (!node.IsMap() || node.size() == 0) {
      error(key, "must be a map of sizes to shares of the peak", "something else", "see hardware/h100.yaml");
      return points;
    }
    for (const auto& entry : node) {
      const MatmulPoint point{value(entry.first, key + " size", 1, kAny),
                              value(entry.second, key + " share", 0.01, 1)};
      if (!points.empty() && point.size <= points.back().size)
        error(key, "must have ascending sizes", fmt::format("{} after {}", point.size, points.back().size),
              "sort them");
      points.push_back(point);
    }
    return points;
  }

  Link link(const std::string& key) {
    const YAML::Node node = node_of(key);
    if (!node) return {};
    if (!node.IsMap() || node.size() != 3 || !node["bandwidth"] || !node["share"] || !node["latency"]) {
      error(key, "must be a map of bandwidth, share and latency", "something else", "see hardware/h100.yaml");
      return {};
    }
    return {value(node["bandwidth"], key + ".bandwidth", 1, kAny),
            value(node["share"], key + ".share", 0.01, 1), value(node["latency"], key + ".latency", 0, 1)};
  }

  const YAML::Node& root_;
  std::string source_;
  std::set<std::string> known_;
  std::vector<std::string> errors_;
};

}  // namespace

double Hardware::matmul_share(double m, double n, double k) const {
  const double size = 3 / (1 / m + 1 / n + 1 / k);
  if (size <= matmul_curve.front().size) return matmul_curve.front().share * size / matmul_curve.front().size;
  for (std::size_t i = 1; i < matmul_curve.size(); ++i) {
    const MatmulPoint& low = matmul_curve[i - 1];
    const MatmulPoint& high = matmul_curve[i];
    if (size > high.size) continue;
    const double part = std::log(size / low.size) / std::log(high.size / low.size);
    return low.share + part * (high.share - low.share);
  }
  return matmul_curve.back().share;
}

std::vector<std::string> hardware_names() {
  std::vector<std::string> names;
  for (const HardwareFile& file : hardware_files()) names.emplace_back(file.name);
  return names;
}

Hardware parse_hardware(const std::string& yaml, const std::string& source) {
  try {
    const YAML::Node root = YAML::Load(yaml);
    if (!root.IsMap())
      throw ConfigError(fmt::format("{} must hold `key: value` lines; got {}; see hardware/h100.yaml", source,
                                    root.IsSequence() ? "a list" : "no map"));
    return Reader(root, source).read();
  } catch (const YAML::Exception& e) {
    throw ConfigError(fmt::format("{}:{} must be YAML; got an error at column {}: {}; fix that line", source,
                                  e.mark.line + 1, e.mark.column + 1, e.msg));
  }
}

Hardware read_hardware(const std::string& name_or_file) {
  for (const HardwareFile& file : hardware_files())
    if (file.name == name_or_file) return parse_hardware(std::string(file.text), name_or_file);
  std::string text;
  try {
    text = read_file(name_or_file);
  } catch (const DataError& e) {
    throw ConfigError(
        fmt::format("--hardware must be one of {}, or a YAML file that can be read; got '{}' ({}); see "
                    "hardware/h100.yaml for its form",
                    fmt::join(hardware_names(), ", "), name_or_file, e.what()));
  }
  return parse_hardware(text, name_or_file);
}

}  // namespace colonnade::cost
