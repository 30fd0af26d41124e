// What a cluster can do: a small YAML file per kind of device. Those of hardware/ are compiled in and found
// by name, so the program needs no folder beside it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace colonnade::cost {

/// A way between devices. A ring over k of them that moves B bytes takes
/// B (k-1)/k / (bandwidth * share) + (k-1) * latency.
struct Link {
  double bandwidth = 0;  ///< bytes per second, per device and direction, of the data sheet
  double share = 0;      ///< what of it collectives reach
  double latency = 0;    ///< seconds per step of a ring
};

/// A point of the curve that says what of the peak a product of matrices reaches.
struct ProductShare {
  double size = 0;   ///< harmonic mean of m, n and k
  double share = 0;  ///< of peak_flops
};

/// All sizes in bytes, seconds and FLOP/s (a multiply-add is two).
struct Hardware {
  std::string name;
  int devices_per_node = 0;
  double memory_bytes = 0;
  double reserved_bytes =
      0;  ///< of them, what tensors cannot have: context, libraries' buffers, fragmentation
  double memory_bandwidth = 0;
  double memory_share = 0;             ///< what of it elementwise kernels reach
  double peak_flops = 0;               ///< dense bf16
  std::vector<ProductShare> products;  ///< by ascending size
  double fp32_flops = 0;          ///< of products in fp32 (routers), which reach the last share of `products`
  double sustained_share = 0;     ///< what of a product's speed alone is left in a long run (power, clocks)
  double attention_forward = 0;   ///< share of peak_flops of fused causal attention
  double attention_backward = 0;  ///< the same of its backward pass, whose FLOPs are 2.5 times as many
  double kernel_seconds = 0;      ///< between two kernels
  double step_seconds = 0;        ///< of a step beside all that is counted: data, logging, synchronisation
  double overlap_cost = 0;  ///< seconds that a second of communication costs the products it runs beside
  Link intra_node, inter_node;

  /// Bytes that tensors may take.
  [[nodiscard]] double usable_bytes() const { return memory_bytes - reserved_bytes; }
  /// Share of the peak of a product [m, k] x [k, n] alone: linear in the logarithm of the size between two
  /// points, as the last point above it, proportional to the size below the first.
  [[nodiscard]] double product_share(double m, double n, double k) const;
};

/// Names of the files that are compiled in: "a100", "b200", ...
std::vector<std::string> hardware_names();

/// The hardware of a name, or of a YAML file. Throws ConfigError with all that is wrong with it.
Hardware read_hardware(const std::string& name_or_file);

/// The hardware that `yaml` describes; `source` names it in messages. Throws ConfigError as above.
Hardware parse_hardware(const std::string& yaml, const std::string& source);

/// A file of hardware/ as text; made by CMake.
struct HardwareFile {
  std::string_view name, text;
};
std::vector<HardwareFile> hardware_files();

}  // namespace colonnade::cost
