// Draws a timeline: SVG for reports, rows of text for terminals.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "colonnade/schedule/program.h"

namespace colonnade::schedule {
namespace {

constexpr double kRowHeight = 26, kRowGap = 4, kLeft = 64, kTop = 44, kMargin = 12;
constexpr std::size_t kMaxTextColumns = 400;

/// Duration of the shortest span, the unit of both pictures.
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

/// How the actions that take time are drawn.
struct Look {
  Do act;
  std::string_view name;
  char letter;
  int hue;
};
constexpr Look kLooks[] = {
    {Do::kForward, "forward", 'F', 212},
    {Do::kBackward, "backward", 'B', 142},
    {Do::kBackwardInput, "input gradient", 'B', 176},
    {Do::kBackwardWeight, "weight gradient", 'W', 36},
};
const Look& look_of(Do act) {
  return *std::find_if(std::begin(kLooks), std::end(kLooks), [&](const Look& l) { return l.act == act; });
}

/// Lightness of a chunk's boxes: later chunks are paler, all legible under dark text.
std::string fill(const Look& look, int chunk, int chunks) {
  const int lightness = chunks == 1 ? 66 : 58 + chunk * 28 / (chunks - 1);
  return fmt::format("hsl({},70%,{}%)", look.hue, lightness);
}

constexpr std::string_view kStyle =
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
      "<text x=\"{}\" y=\"16\">{}: {} ranks, {} virtual stages per rank, {} micro-batches, idle "
      "{:.1f}%</text>",
      kMargin, s.kind, s.ranks, s.chunks, s.microbatches, 100 * timeline.bubble_fraction);
  double x = kMargin;
  for (const Look& look : kLooks) {
    const auto drawn = [&](const Timeline::Span& span) { return span.action.act == look.act; };
    if (std::none_of(timeline.spans.begin(), timeline.spans.end(), drawn)) continue;
    for (int chunk = 0; chunk < s.chunks; ++chunk) {
      const std::string label = fmt::format("{}{}", look.name, s.chunks > 1 ? fmt::format(" {}", chunk) : "");
      out.svg += fmt::format(
          "<rect x=\"{:.0f}\" y=\"24\" width=\"12\" height=\"12\" fill=\"{}\"/>"
          "<text x=\"{:.0f}\" y=\"34\">{}</text>",
          x, fill(look, chunk, s.chunks), x + 16, label);
      x += 30 + 7 * static_cast<double>(label.size());
    }
  }
  out.width = x;
  return out;
}

}  // namespace

std::string paint_svg(const Timeline& timeline, const Schedule& s) {
  const double scale = std::clamp(24 / unit_of(timeline), 0.0, 6000 / std::max(timeline.makespan, 1e-300));
  const double plot = timeline.makespan * scale;
  const Legend head = legend(timeline, s);
  const double width = std::max(kLeft + plot + kMargin, head.width);
  const double height = kTop + s.ranks * (kRowHeight + kRowGap) + kMargin;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" "
      "role=\"img\" aria-label=\"pipeline schedule\">{2}{3}",
      width, height, kStyle, head.svg);
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
    const Look& look = look_of(a.act);
    out += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\">"
        "<title>{} of micro-batch {}, chunk {}, {:.4g} to {:.4g}</title></rect>",
        x, top(span.rank), std::max(w - 1, 0.5), kRowHeight, fill(look, a.chunk, s.chunks), look.name,
        a.microbatch, a.chunk, span.begin, span.end);
    if (w >= 14) {
      out += fmt::format("<text class=\"box\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", x + w / 2,
                         top(span.rank) + 17, a.microbatch);
    }
  }
  return out + "</svg>\n";
}

std::string paint_text(const Timeline& timeline, const Schedule& s) {
  const std::size_t cell = fmt::formatted_size("F{}{} ", s.microbatches - 1, s.chunks > 1 ? "b" : "");
  const double columns = static_cast<double>(cell) / unit_of(timeline);
  std::vector<std::string> rows;
  for (int rank = 0; rank < s.ranks; ++rank) rows.push_back(fmt::format("rank {:<{}} |", rank, 3));
  const std::size_t left = rows.empty() ? 0 : rows[0].size();
  for (const auto& span : timeline.spans) {
    std::string& row = rows[static_cast<std::size_t>(span.rank)];
    const auto begin = static_cast<std::size_t>(std::lround(span.begin * columns)) + left;
    if (row.size() < begin) row.resize(begin, ' ');
    row += fmt::format("{}{}{} ", look_of(span.action.act).letter, span.action.microbatch,
                       chunk_letters(span.action.chunk));
  }
  std::string out;
  for (std::string& row : rows) {
    row.erase(row.find_last_not_of(' ') + 1);
    if (row.size() > kMaxTextColumns) row = row.substr(0, kMaxTextColumns) + " ...";
    out += row + '\n';
  }
  return out;
}

}  // namespace colonnade::schedule
