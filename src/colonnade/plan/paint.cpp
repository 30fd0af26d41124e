// Draws a timeline: SVG for reports, rows of text for terminals.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "colonnade/plan/program.h"

namespace colonnade::plan {
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

/// Lightness of a chunk's boxes: later chunks are paler, all legible under dark text.
std::string fill(Do act, int chunk, int chunks) {
  const int hue = act == Do::kForward ? 212 : 142;
  const int lightness = chunks == 1 ? 66 : 58 + chunk * 28 / (chunks - 1);
  return fmt::format("hsl({},70%,{}%)", hue, lightness);
}

constexpr std::string_view kStyle =
    "<style>"
    "text{font:11px system-ui,sans-serif;fill:#1f2328}"
    ".box{fill:#101418;text-anchor:middle;font-size:10px}"
    ".row{fill:#8884}"
    "@media (prefers-color-scheme:dark){text{fill:#e6edf3}.box{fill:#101418}}"
    "</style>";

std::string legend(const Timeline& timeline, const Schedule& s) {
  std::string out = fmt::format(
      "<text x=\"{}\" y=\"16\">{}: {} ranks, {} virtual stages per rank, {} micro-batches, idle "
      "{:.1f}%</text>",
      kMargin, s.kind, s.ranks, s.chunks, s.microbatches, 100 * timeline.bubble_fraction);
  double x = kMargin;
  for (const Do act : {Do::kForward, Do::kBackward}) {
    for (int chunk = 0; chunk < s.chunks; ++chunk) {
      const std::string label = fmt::format("{}{}", act == Do::kForward ? "forward" : "backward",
                                            s.chunks > 1 ? fmt::format(" {}", chunk) : "");
      out += fmt::format(
          "<rect x=\"{:.0f}\" y=\"24\" width=\"12\" height=\"12\" fill=\"{}\"/>"
          "<text x=\"{:.0f}\" y=\"34\">{}</text>",
          x, fill(act, chunk, s.chunks), x + 16, label);
      x += 30 + 7 * static_cast<double>(label.size());
    }
  }
  return out;
}

}  // namespace

std::string paint_svg(const Timeline& timeline, const Schedule& s) {
  const double scale = std::clamp(24 / unit_of(timeline), 0.0, 6000 / std::max(timeline.makespan, 1e-300));
  const double plot = timeline.makespan * scale;
  const double width = std::max(kLeft + plot + kMargin, 64 + 2.0 * s.chunks * 106);
  const double height = kTop + s.ranks * (kRowHeight + kRowGap) + kMargin;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" "
      "role=\"img\" aria-label=\"pipeline schedule\">{2}{3}",
      width, height, kStyle, legend(timeline, s));
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
    out += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\">"
        "<title>{} of micro-batch {}, chunk {}, {:.4g} to {:.4g}</title></rect>",
        x, top(span.rank), std::max(w - 1, 0.5), kRowHeight, fill(a.act, a.chunk, s.chunks),
        a.act == Do::kForward ? "forward" : "backward", a.microbatch, a.chunk, span.begin, span.end);
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
    row += fmt::format("{}{}{} ", span.action.act == Do::kForward ? 'F' : 'B', span.action.microbatch,
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

}  // namespace colonnade::plan
