// See report_charts.h.
#include "colonnade/record/report_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "colonnade/record/step_line.h"

namespace colonnade::record {
namespace {

using Points = std::vector<std::pair<double, double>>;

constexpr double kWidth = 560, kHeight = 240;
constexpr double kLeft = 58, kRight = 12, kTop = 10, kBottom = 34;

struct ChartFrame {
  double x_low, x_high, y_low, y_high;
  [[nodiscard]] double x(double v) const {
    return kLeft + (v - x_low) / (x_high - x_low) * (kWidth - kLeft - kRight);
  }
  [[nodiscard]] double y(double v) const {
    return kHeight - kBottom - (v - y_low) / (y_high - y_low) * (kHeight - kTop - kBottom);
  }
};

std::string number(double value) {
  const double size = std::abs(value);
  if (size >= 1000) return short_number(value);
  if (size != 0 && size < 0.01) return fmt::format("{:.3g}", value);
  return fmt::format("{:.4g}", value);
}

/// Bounding box of all points, never empty in either direction.
ChartFrame frame_of(const Chart& chart, const std::vector<Points>& lines) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  ChartFrame f{kInf, -kInf, kInf, -kInf};
  for (const auto& line : lines)
    for (const auto& [x, y] : line) {
      f.x_low = std::min(f.x_low, x);
      f.x_high = std::max(f.x_high, x);
      f.y_low = std::min(f.y_low, y);
      f.y_high = std::max(f.y_high, y);
    }
  if (chart.from_zero) f.y_low = std::min(0.0, f.y_low);
  if (f.x_low == f.x_high) f.x_high += 1;
  const double margin =
      f.y_high > f.y_low ? (f.y_high - f.y_low) * 0.05 : std::max(std::abs(f.y_high) * 0.05, 1e-12);
  f.y_high += margin;
  if (!chart.from_zero) f.y_low -= margin;
  return f;
}

std::string axes(const ChartFrame& f, const std::string& x_name) {
  const double right = kWidth - kRight, bottom = kHeight - kBottom;
  std::string svg;
  for (const double tick : round_ticks(f.y_low, f.y_high, 5)) {
    const double y = f.y(tick);
    svg += fmt::format("<line class='grid' x1='{}' x2='{}' y1='{:.1f}' y2='{:.1f}'/>", kLeft, right, y, y);
    svg += fmt::format("<text x='{}' y='{:.1f}' class='tick end'>{}</text>", kLeft - 6, y + 4, number(tick));
  }
  for (const double tick : round_ticks(f.x_low, f.x_high, 6))
    svg += fmt::format("<text x='{:.1f}' y='{}' class='tick mid'>{}</text>", f.x(tick), bottom + 16,
                       number(tick));
  svg += fmt::format("<line class='axis' x1='{}' x2='{}' y1='{}' y2='{}'/>", kLeft, right, bottom, bottom);
  svg +=
      fmt::format("<text x='{}' y='{}' class='tick end'>{}</text>", right, kHeight - 4, escape_html(x_name));
  return svg;
}

std::string draw_marks(const ChartFrame& f, const std::vector<double>& marks) {
  std::string svg;
  for (const double x : marks)
    if (x > f.x_low && x < f.x_high)
      svg += fmt::format("<line class='mark' x1='{0:.1f}' x2='{0:.1f}' y1='{1}' y2='{2}'/>", f.x(x), kTop,
                         kHeight - kBottom);
  return svg;
}

std::string draw_line(const ChartFrame& f, const Points& line, int color) {
  if (line.size() == 1)
    return fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='4' style='fill:var(--s{})'/>", f.x(line[0].first),
                       f.y(line[0].second), color);
  std::string points;
  for (const auto& [x, y] : line) points += fmt::format("{:.1f},{:.1f} ", f.x(x), f.y(y));
  return fmt::format("<polyline points='{}' style='stroke:var(--s{})'/>", points, color);
}

/// Data of the hover script: per line its name and [x pixel, y pixel, x text, y text] of each point.
std::string hover_data(const ChartFrame& f, const Chart& chart, const std::vector<Points>& lines) {
  std::string json = "[";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::string points;
    for (const auto& [x, y] : lines[i])
      points += fmt::format("{}[{:.1f},{:.1f},\"{:.10g}\",\"{}\"]", points.empty() ? "" : ",", f.x(x), f.y(y),
                            x, number(y));
    json += fmt::format("{}[\"{}\",[{}]]", i == 0 ? "" : ",", chart.series[i].name, points);
  }
  return json + "]";
}

std::string legend(const Chart& chart) {
  if (chart.series.size() < 2) return "";
  std::string html;
  for (const auto& s : chart.series)
    html += fmt::format("<span><i style='background:var(--s{})'></i>{}</span>", s.color, escape_html(s.name));
  return "<div class=\"legend\">" + html + "</div>";
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::vector<double> round_ticks(double low, double high, int count) {
  std::vector<double> ticks;
  if (!(high > low) || count < 1) return ticks;
  const double rough = (high - low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double factor = rough / power;
  const double step = power * (factor <= 1 ? 1 : factor <= 2 ? 2 : factor <= 5 ? 5 : 10);
  const double first = std::ceil(low / step - 1e-9);
  for (int i = 0; i <= count + 1; ++i) {
    const double tick = (first + i) * step;
    if (tick > high * (1 + 1e-12) && tick - high > step * 1e-9) break;
    ticks.push_back(std::abs(tick) < step * 1e-9 ? 0.0 : tick);
  }
  return ticks;
}

Points thin_out(const Points& points, int columns) {
  if (columns < 1 || points.size() <= 2 * static_cast<std::size_t>(columns)) return points;
  Points kept;
  const auto n = points.size();
  const auto by_y = [](const auto& a, const auto& b) { return a.second < b.second; };
  for (std::size_t c = 0; c < static_cast<std::size_t>(columns); ++c) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(c * n / columns);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>((c + 1) * n / columns);
    auto [low, high] = std::minmax_element(begin, end, by_y);
    if (high < low) std::swap(low, high);
    kept.push_back(*low);
    if (high != low) kept.push_back(*high);
  }
  if (kept.back() != points.back()) kept.back() = points.back();
  return kept;
}

std::string draw_chart(const Chart& chart) {
  std::vector<Points> lines;
  bool empty = true;
  for (const auto& s : chart.series) {
    Points numbers;
    std::copy_if(s.points.begin(), s.points.end(), std::back_inserter(numbers),
                 [](const auto& p) { return std::isfinite(p.second); });
    empty = empty && numbers.empty();
    lines.push_back(thin_out(numbers, 300));
  }
  const std::string caption = fmt::format("<figcaption>{}</figcaption>", escape_html(chart.title));
  if (empty) return fmt::format("<figure>{}<p class=\"none\">nothing recorded yet</p></figure>\n", caption);
  const ChartFrame f = frame_of(chart, lines);
  std::string svg = axes(f, chart.x_name) + draw_marks(f, chart.marks);
  for (std::size_t i = 0; i < lines.size(); ++i)
    if (!lines[i].empty()) svg += draw_line(f, lines[i], chart.series[i].color);
  return fmt::format(
      "<figure>{}{}<svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\" "
      "data-lines=\"{}\">{}</svg></figure>\n",
      caption, legend(chart), kWidth, kHeight, escape_html(chart.title),
      escape_html(hover_data(f, chart, lines)), svg);
}

}  // namespace colonnade::record
