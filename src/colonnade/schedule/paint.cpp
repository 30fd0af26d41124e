// Draws a timeline as SVG for reports and as text for terminals.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "colonnade/schedule/program.h"

namespace colonnade::schedule {
namespace {

constexpr double kRowHeight = 26, kRowGap = 4, kLeft = 64, kTop = 44, kMargin = 12;
constexpr std::size_t kMaxTextColumns = 400;

/// Duration of the shortest span, the unit of both drawings.
double unit_of(const Timeline& timeline) {
  double unit = 0;
  for (const auto& span : timeline.spans) {
    const double length = span.end - span.begin;
    if (length > 0 && (unit == 0 || length < unit)) unit = length;
  }
  return unit > 0 ? unit : 1;
}

std::string chunk_letters(int chunk) {
  return chunk == 0 ? "" : fmt::format("{:c}", 'a' + std::min(chunk, 25));
}

/// Name, letter and color of a compute action.
struct Style {
  ActionKind kind;
  std::string_view name;
  char letter;
  int hue;
};
constexpr Style kStyles[] = {
    {ActionKind::kForward, "forward", 'F', 212},
    {ActionKind::kBackward, "backward", 'B', 142},
    {ActionKind::kBackwardInput, "input gradient", 'B', 176},
    {ActionKind::kBackwardWeight, "weight gradient", 'W', 36},
};
const Style& style_of(ActionKind kind) {
  return *std::find_if(std::begin(kStyles), std::end(kStyles),
                       [&](const Style& s) { return s.kind == kind; });
}

/// Fill color of a chunk's boxes: later chunks are lighter, all legible under dark text.
std::string fill(const Style& style, int chunk, int chunks) {
  const int lightness = chunks == 1 ? 66 : 58 + chunk * 28 / (chunks - 1);
  return fmt::format("hsl({},70%,{}%)", style.hue, lightness);
}

constexpr std::string_view kStyleSheet =
    "<style>"
    "text{font:11px system-ui,sans-serif;fill:#1f2328}"
    ".box{fill:#101418;text-anchor:middle;font-size:10px}"
    ".row{fill:#8884}"
    "@media (prefers-color-scheme:dark){text{fill:#e6edf3}.box{fill:#101418}}"
    "</style>";

struct Legend {
  std::string svg;
  double width = 0;
};

Legend legend(const Timeline& timeline, const Schedule& s) {
  Legend out;
  out.svg = fmt::format(
      "<text x=\"{}\" y=\"16\">{}: {} ranks, {} virtual stages per rank, {} micro-batches, bubble "
      "{:.1f}%</text>",
      kMargin, s.kind, s.ranks, s.chunks, s.microbatches, 100 * timeline.bubble_fraction);
  double x = kMargin;
  for (const Style& style : kStyles) {
    const auto drawn = [&](const Timeline::Span& span) { return span.action.kind == style.kind; };
    if (std::none_of(timeline.spans.begin(), timeline.spans.end(), drawn)) continue;
    for (int chunk = 0; chunk < s.chunks; ++chunk) {
      const std::string label =
          fmt::format("{}{}", style.name, s.chunks > 1 ? fmt::format(" {}", chunk) : "");
      out.svg += fmt::format(
          "<rect x=\"{:.0f}\" y=\"24\" width=\"12\" height=\"12\" fill=\"{}\"/>"
          "<text x=\"{:.0f}\" y=\"34\">{}</text>",
          x, fill(style, chunk, s.chunks), x + 16, label);
      x += 30 + 7 * static_cast<double>(label.size());
    }
  }
  out.width = x;
  return out;
}

}  // namespace

std::string render_svg(const Timeline& timeline, const Schedule& s) {
  const double scale = std::clamp(24 / unit_of(timeline), 0.0, 6000 / std::max(timeline.makespan, 1e-300));
  const double plot = timeline.makespan * scale;
  const Legend head = legend(timeline, s);
  const double width = std::max(kLeft + plot + kMargin, head.width);
  const double height = kTop + s.ranks * (kRowHeight + kRowGap) + kMargin;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" "
      "role=\"img\" aria-label=\"pipeline schedule\">{2}{3}",
      width, height, kStyleSheet, head.svg);
  const auto top = [](int rank) { return kTop + rank * (kRowHeight + kRowGap); };
  for (int rank = 0; rank < s.ranks; ++rank) {
    out += fmt::format(
        "<text x=\"{}\" y=\"{:.1f}\">rank {}</text>"
        "<rect class=\"row\" x=\"{}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\"/>",
        kMargin, top(rank) + 17, rank, kLeft, top(rank), plot, kRowHeight);
  }
  for (const auto& span : timeline.spans) {
    const double x = kLeft + span.begin * scale;
    const double w = (span.end - span.begin) * scale;
    const Action& a = span.action;
    const Style& style = style_of(a.kind);
    out += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\">"
        "<title>{} of micro-batch {}, chunk {}, {:.4g} to {:.4g}</title></rect>",
        x, top(span.rank), std::max(w - 1, 0.5), kRowHeight, fill(style, a.chunk, s.chunks), style.name,
        a.microbatch, a.chunk, span.begin, span.end);
    if (w >= 14) {
      out += fmt::format("<text class=\"box\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", x + w / 2,
                         top(span.rank) + 17, a.microbatch);
    }
  }
  return out + "</svg>\n";
}

std::string render_text(const Timeline& timeline, const Schedule& s) {
  const std::size_t cell = fmt::formatted_size("F{}{} ", s.microbatches - 1, s.chunks > 1 ? "b" : "");
  const double columns = static_cast<double>(cell) / unit_of(timeline);
  std::vector<std::string> rows;
  for (int rank = 0; rank < s.ranks; ++rank) rows.push_back(fmt::format("rank {:<{}} |", rank, 3));
  const std::size_t left = rows.empty() ? 0 : rows[0].size();
  for (const auto& span : timeline.spans) {
    std::string& row = rows[static_cast<std::size_t>(span.rank)];
    const auto begin = static_cast<std::size_t>(std::lround(span.begin * columns)) + left;
    if (row.size() < begin) row.resize(begin, ' ');
    row += fmt::format("{}{}{} ", style_of(span.action.kind).letter, span.action.microbatch,
                       chunk_letters(span.action.chunk));
  }
  std::string out;
  for (std::string& row : rows) {
    row.erase(row.find_last_not_of(' ') + 1);
    if (row.size() > kMaxTextColumns) row.replace(kMaxTextColumns, std::string::npos, " ...");
    out += row + '\n';
  }
  return out;
}

}  // namespace colonnade::schedule
