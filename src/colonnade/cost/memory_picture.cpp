// See memory_picture.h.
#include "colonnade/cost/memory_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "colonnade/cost/describe.h"

namespace colonnade::cost {
namespace {

/// A part of a rank's memory at the peak of a step; kShares lists them from the start of the bar.
struct Share {
  char letter;
  std::string_view name, color;
  std::int64_t StageMemory::*bytes;
};
constexpr std::array kShares{
    Share{'w', "weights", "#4878a8", &StageMemory::parameters},
    Share{'g', "gradients", "#e49444", &StageMemory::gradients},
    Share{'o', "optimizer", "#85b6b2", &StageMemory::optimizer},
    Share{'r', "rotary embeddings", "#a7a7a7", &StageMemory::rotary_tables},
    Share{'a', "activations", "#6a9f58", &StageMemory::activations},
    Share{'x', "workspace", "#d1615d", &StageMemory::workspace},
};

struct Phase {
  std::string_view name;
  std::int64_t (StageMemory::*bytes)() const;
};
constexpr std::array kOtherPhases{
    Phase{"start-up", &StageMemory::start_up},
    Phase{"optimizer", &StageMemory::resident},
    Phase{"evaluation", &StageMemory::evaluation_peak},
};

bool has(const std::vector<StageMemory>& plan, const Share& share) {
  return std::ranges::any_of(plan, [&](const StageMemory& m) { return m.*share.bytes > 0; });
}

double max_peak(const std::vector<StageMemory>& plan) {
  std::int64_t peak = 1;
  for (const StageMemory& m : plan) peak = std::max({peak, m.peak(), m.start_up(), m.evaluation_peak()});
  return static_cast<double>(peak);
}

std::string text_of(std::int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

}  // namespace

std::string memory_bars(const std::vector<StageMemory>& plan) {
  constexpr double kColumns = 64;
  const double scale = kColumns / max_peak(plan);
  std::string out;
  for (std::size_t rank = 0; rank < plan.size(); ++rank) {
    std::string bar;
    double end = 0;
    for (const Share& share : kShares) {
      end += static_cast<double>(plan[rank].*share.bytes) * scale;
      bar.resize(std::max(bar.size(), static_cast<std::size_t>(std::lround(end))), share.letter);
    }
    out += fmt::format("rank {:<3} |{:<{}}| {}\n", rank, bar, static_cast<int>(kColumns),
                       text_of(plan[rank].peak()));
  }
  std::string letters;
  for (const Share& share : kShares)
    if (has(plan, share))
      letters += fmt::format("{}{} {}", letters.empty() ? "" : ", ", share.letter, share.name);
  return out + letters + "\n";
}

std::string memory_svg(const std::vector<StageMemory>& plan) {
  constexpr double kLeft = 70, kTop = 48, kWidth = 720, kRow = 24, kGap = 6, kMargin = 10;
  const double scale = kWidth / max_peak(plan);
  const double height = kTop + static_cast<double>(plan.size()) * (kRow + kGap) + kMargin;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "role=\"img\" aria-label=\"memory by pipeline rank\">"
      "<style>text{{font:12px sans-serif;fill:#333}}.row{{fill:#f2f2f2}}.phase{{stroke:#222;stroke-width:1.5}}</style>"
      "<text x=\"{2}\" y=\"16\">memory at the peak of a step; lines: {3}, {4}, {5}</text>",
      kLeft + kWidth + 90, height, kMargin, kOtherPhases[0].name, kOtherPhases[1].name, kOtherPhases[2].name);
  double x = kMargin;
  for (const Share& share : kShares) {
    if (!has(plan, share)) continue;
    out += fmt::format(
        "<rect x=\"{:.0f}\" y=\"24\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{:.0f}\" y=\"34\">{}</text>",
        x, share.color, x + 16, share.name);
    x += 30 + 7 * static_cast<double>(share.name.size());
  }
  for (std::size_t rank = 0; rank < plan.size(); ++rank) {
    const StageMemory& m = plan[rank];
    const double top = kTop + static_cast<double>(rank) * (kRow + kGap);
    out += fmt::format(
        "<text x=\"{}\" y=\"{:.0f}\">rank {}</text><rect class=\"row\" x=\"{}\" y=\"{:.0f}\" width=\"{}\" height=\"{}\"/>",
        kMargin, top + 16, rank, kLeft, top, kWidth, kRow);
    double begin = kLeft;
    for (const Share& share : kShares) {
      const double width = static_cast<double>(m.*share.bytes) * scale;
      if (width > 0)
        out += fmt::format(
            "<rect x=\"{:.1f}\" y=\"{:.0f}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"><title>{} {}</title></rect>",
            begin, top, width, kRow, share.color, share.name, text_of(m.*share.bytes));
      begin += width;
    }
    for (const Phase& phase : kOtherPhases) {
      const std::int64_t bytes = (m.*phase.bytes)();
      const double at = kLeft + static_cast<double>(bytes) * scale;
      out += fmt::format(
          "<line class=\"phase\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.0f}\" y2=\"{2:.0f}\"><title>{3} {4}</title></line>",
          at, top - 2, top + kRow + 2, phase.name, text_of(bytes));
    }
    out += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\">{}</text>", kLeft + kWidth + 8, top + 16,
                       text_of(m.peak()));
  }
  return out + "</svg>\n";
}

}  // namespace colonnade::cost
